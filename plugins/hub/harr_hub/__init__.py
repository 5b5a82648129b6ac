"""Push questions and trained models to the Hugging Face hub, with cards: `harr push`."""
