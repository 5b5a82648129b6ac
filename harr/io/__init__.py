"""Atomic files, JSON Lines, safe model folders, resumable work, progress."""
