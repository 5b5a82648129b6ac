"""Other programs measured against harr: `python -m benchmarks.peers`."""
