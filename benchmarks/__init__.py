"""Measurements, and commands that write pages."""
