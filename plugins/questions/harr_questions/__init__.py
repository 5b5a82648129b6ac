"""Questions with gold passages, written by a language model from a corpus that has none: `harr questions`."""
