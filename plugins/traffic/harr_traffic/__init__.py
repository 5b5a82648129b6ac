"""What the log of `harr serve` says about another model, and learning from it: `harr replay`, the shadow, GRPO."""
