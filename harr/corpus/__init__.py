"""Formats of passages, questions and vectors on disk."""
