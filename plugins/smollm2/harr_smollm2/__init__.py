"""A small language model from the package index."""
