"""Stage generator: the small language model, warm starts, and the demonstrations they learn from."""
