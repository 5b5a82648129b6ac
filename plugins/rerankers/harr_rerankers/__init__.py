"""Rerankers: the arm ``rerank``, and a cross-encoder that is trained on a project's questions."""
