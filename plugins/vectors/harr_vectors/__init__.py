"""An encoder that cannot be computed locally: its vectors come from an API or from files."""
