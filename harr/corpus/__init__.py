"""Passages, questions and vectors on disk: their formats."""
