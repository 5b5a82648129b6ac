"""How rankings are made and fused."""
