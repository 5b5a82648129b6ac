"""What watches the answers of `harr serve`, of another package: ``--observer package.module:name[=TEXT]``."""

from dataclasses import dataclass
from typing import Any, Protocol

from harr.serve.bodies import SearchBody
from harr.types import Retrieval


@dataclass(frozen=True, slots=True)
class Answered:
    """A search that was answered: its id in the log ("" without one), the request, and the passages of ``version``."""

    id: str
    body: SearchBody
    version: str
    found: Retrieval


class Observer(Protocol):
    """Made of the service (``harr/serve/service.py``) and of TEXT as the server starts; a HarrError ends it then."""

    def answered(self, one: Answered) -> None:
        """Take an answer that is about to be sent; work that takes time belongs to a thread of the observer's own."""

    def health(self) -> dict[str, Any]:
        """Return its entry in ``/health``."""

    def close(self) -> None:
        """End, before the searcher does."""
