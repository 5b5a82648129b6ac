"""Retrievers over other sources: collections and the web."""
