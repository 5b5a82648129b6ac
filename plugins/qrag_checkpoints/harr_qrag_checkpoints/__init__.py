"""`harr convert`: turn a checkpoint of Q-RAG's code into a model for `harr lengths` and `harr evaluate`."""
