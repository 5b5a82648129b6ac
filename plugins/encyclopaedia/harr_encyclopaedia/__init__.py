"""The fictional encyclopaedia: a world of any size, its scripted player, and a small language model trained on it."""
