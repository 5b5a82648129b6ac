"""Stage merge: fold the adapter into the trained model."""
