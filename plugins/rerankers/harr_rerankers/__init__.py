"""A cross-encoder that is trained on a project's questions, for the arm ``rerank``."""
