"""Stories in long documents (BABILong), and `harr lengths`: two towers in documents of every length (Q-RAG)."""
