"""The composition root: names in params.yaml become objects."""
