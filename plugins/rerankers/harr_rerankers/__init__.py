"""Rerankers: the arm ``rerank``, and training a cross-encoder on a project's questions."""
