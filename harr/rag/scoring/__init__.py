"""Rewards and metrics of an episode."""
