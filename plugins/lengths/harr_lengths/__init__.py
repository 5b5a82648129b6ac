"""`harr lengths`: a trained retriever of two towers in documents of every length (Q-RAG)."""
