"""What users searched and how it went: kept by `harr serve`, and what it says of another model."""
