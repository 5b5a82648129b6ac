"""`harr serve`: a trained retriever as a server, whose model changes under it while passages and index stay."""
