"""Playing: pipelines, the players they ask, and an episode's reward."""
