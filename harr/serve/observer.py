"""Observers of `harr serve`'s answers from other packages: ``--observer package.module:name[=TEXT]``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute

from harr.index.corpus import Corpus
from harr.serve.bodies import SearchBody
from harr.types import Retrieval


@dataclass(frozen=True, slots=True)
class Answered:
    """An answered search: the request, the passages that ``version`` found in ``corpus``, and the response, which may
    be extended.

    ``reads``: the fields of the model's states (:func:`harr.rag.policies.state.reads`).
    """

    body: SearchBody
    version: str
    corpus: Corpus
    reads: str
    found: Retrieval
    response: dict[str, Any]


class Observer:
    """Made from the service (``harr/serve/service.py``) and TEXT at the server's start, which a HarrError ends."""

    def first_kept(self) -> int | None:
        """Return how many of the next search's first passages are the best ones, the others being sampled from the
        model's own probabilities; None if nothing is sampled."""
        return None

    def answered(self, one: Answered) -> None:
        """Receive an answer about to be sent; slow work belongs in the observer's own thread."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return further routes for the server."""
        return ()

    def health(self) -> dict[str, Any]:
        """Return the observer's entry in ``/health``."""
        return {}

    def close(self) -> None:
        """Stop, before the searcher closes."""
