"""The project that these tests use."""

from trained import here, project

__all__ = ["here", "project"]
