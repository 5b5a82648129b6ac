"""Fixtures of the library's tests."""

from towns import corpus, setup

__all__ = ["corpus", "setup"]
