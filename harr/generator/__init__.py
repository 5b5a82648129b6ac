"""Stage generator: warm starts, and the demonstrations they learn from."""
