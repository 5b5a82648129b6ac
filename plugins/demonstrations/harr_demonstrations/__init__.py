"""Demonstrations for a warm start from the best episodes of a teacher, or of the model itself."""
