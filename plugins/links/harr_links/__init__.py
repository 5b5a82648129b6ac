"""Candidates that are named or linked, their features, and a rule that follows titles."""
