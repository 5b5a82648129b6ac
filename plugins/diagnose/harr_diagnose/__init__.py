"""What can be known before training is paid for: how good simple search is, what limits it, what training could add."""
