"""Retrievers that ask elsewhere: collections and the web."""
