"""Candidates found by name or link, their features, and a rule that follows titles."""
