"""Runtime of a stage's process: limits, a lock, signals, and one-line errors."""
