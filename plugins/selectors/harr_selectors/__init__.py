"""Search at test time: a model that sees no gold grades what sampled episodes found, and one is chosen."""
