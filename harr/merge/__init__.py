"""Stage merge: the adapter becomes part of the model that was trained."""
