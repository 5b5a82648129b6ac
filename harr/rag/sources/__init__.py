"""Retrievers that ask elsewhere: collections, the web, recorded answers."""
