"""When to stop picking: what a threshold on Q would give, from logs of `harr lengths`: `harr stopping`."""
