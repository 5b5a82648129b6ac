"""Stages train and arms: one file per method, whose loop reads from top to bottom."""
