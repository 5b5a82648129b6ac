"""`harr serve`: a trained retriever as a server that follows new model versions while passages and index stay."""
