"""harr teaches the retrieval side of RAG by reinforcement learning.

The package is a plain library: it knows nothing of DVC, Prefect, MLflow or Great Expectations.
Start reading at ``harr/types.py`` (the nouns), then ``harr/rag/rollout.py`` (the game) and
``harr/train/grpo.py`` (the learning loop).
"""

__version__ = "0.1.0"
