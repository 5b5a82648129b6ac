"""Stage generator: warm starts and their demonstrations."""
