"""Stage evaluate: every arm plays the same questions; means with intervals."""
