"""What can be known before paying for training: how good simple search is, what limits it, what training could add."""
