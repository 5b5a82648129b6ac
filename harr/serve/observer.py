"""What watches the answers of `harr serve`, of another package: ``--observer package.module:name[=TEXT]``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute

from harr.serve.bodies import SearchBody
from harr.types import Retrieval


@dataclass(frozen=True, slots=True)
class Answered:
    """A search that was answered: the request, the passages of ``version``, and the response, which may be added to.

    ``reads``: the fields of the model's states (:func:`harr.rag.policies.state.reads`).
    """

    body: SearchBody
    version: str
    reads: str
    found: Retrieval
    response: dict[str, Any]


class Observer:
    """Made of the service (``harr/serve/service.py``) and of TEXT as the server starts; a HarrError ends it then."""

    def first_kept(self) -> int | None:
        """Return how many first passages of the next search stay the best, where the others are drawn by the model's
        own chances; None where nothing is drawn."""
        return None

    def answered(self, one: Answered) -> None:
        """Take an answer that is about to be sent; work that takes time belongs to a thread of the observer's own."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return further routes of the server."""
        return ()

    def health(self) -> dict[str, Any]:
        """Return its entry in ``/health``."""
        return {}

    def close(self) -> None:
        """End, before the searcher does."""
