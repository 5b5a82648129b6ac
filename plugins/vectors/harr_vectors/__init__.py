"""An encoder that nobody here can compute: its vectors come from an API or from files."""
