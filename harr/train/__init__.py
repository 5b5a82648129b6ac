"""Stages train and arms: a file per method, each with a loop that is read from top to bottom."""
