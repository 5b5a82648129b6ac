"""Fixtures of the project's tests that plug-ins' tests use, too."""

from conftest import empty_store, harr, place, stored, tiny, workplace, world

__all__ = ["empty_store", "harr", "place", "stored", "tiny", "workplace", "world"]
