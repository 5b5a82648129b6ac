"""harr trains the retrieval side of RAG by reinforcement learning.

The package is a plain library, independent of DVC, Prefect and Great Expectations; only harr/services/model_registry.py
imports MLflow. Start reading at ``harr/types.py`` (the nouns), then ``harr/rag/rollout.py`` (the game) and
``harr/train/grpo.py`` (the learning loop).
"""

from importlib import import_module
from typing import Any

__version__ = "0.3.0"
_EXPORTED = {
    "Retriever": "harr.builders.trained:TrainedRetriever",
    "Session": "harr.builders.trained:Session",
    "state": "harr.rag.policies.state:state",
    "Hop": "harr.types:Hop",
    "Passage": "harr.types:Passage",
    "Question": "harr.types:Question",
    "Search": "harr.types:Search",
}
"""What applications use. Each is imported at its first use: writing a state needs no torch. Their types are in
__init__.pyi."""


def __getattr__(name: str) -> Any:
    """Import an exported name (PEP 562)."""
    if name not in _EXPORTED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _EXPORTED[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTED])
