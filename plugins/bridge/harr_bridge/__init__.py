"""`harr bridge`: a map from another encoder's space into that of the existing vectors."""
