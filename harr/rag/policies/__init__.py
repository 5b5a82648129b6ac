"""Retrievers that learn: what they show an encoder, and how they choose."""
