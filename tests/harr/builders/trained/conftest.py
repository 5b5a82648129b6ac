"""The project used by these tests."""

from trained import here, project

__all__ = ["here", "project"]
