"""Fixtures of the library's tests, which these use, too."""

from towns import corpus, setup
from trained import here, project

__all__ = ["corpus", "here", "project", "setup"]
