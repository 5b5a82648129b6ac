"""What plays: pipelines, the players they ask, and the reward of an episode."""
