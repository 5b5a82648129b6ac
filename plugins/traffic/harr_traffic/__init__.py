"""What the log of `harr serve` says of another model, and learning from it: `harr replay`, the shadow, GRPO."""
