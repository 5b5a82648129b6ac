"""Distributed processes, batches that fit into memory, checkpoints, and what our TRL trainers share."""
