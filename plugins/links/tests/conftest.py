"""Fixtures of the library's tests, which these use, too."""

from towns import corpus, setup

__all__ = ["corpus", "setup"]
