"""`harr convert`: a checkpoint that the code of Q-RAG wrote becomes a model that `harr lengths` and `harr evaluate` play."""
