"""harr in an application: a trained retriever over its index, a few lines away."""
