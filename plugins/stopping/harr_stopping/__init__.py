"""When to stop picking: the effect of a threshold on Q, from logs of `harr lengths`: `harr stopping`."""
