"""What the process of a stage has: limits, a lock, signals, and one line for an error."""
