"""A client of the retrieval server of Search-R1, whose protocol verl, slime and RLinf share (arXiv 2503.09516).

``POST`` ``{"queries": [...], "topk": k, "return_scores": true}``; the answer is ``{"result": [[hit, ...], ...]}``, a
list per query. A hit is ``{"document": document, "score": s}`` or the document itself, and a document's ``contents`` is
its title in double quotes, a line break, and its text.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import httpx

from harr.errors import HarrError, ServiceUnavailable, bare, one_line
from harr.io.retry import is_transient
from harr.params.servers import ServerParams
from harr.services.bounded import bounded_client, call_within
from harr.types import Passage


class RetrieveClient:
    """A server that gets all pending queries in one request."""

    def __init__(self, server: ServerParams) -> None:
        self._url, self._address = server.urls[0], bare(server.urls[0])
        self._client, self._seconds = bounded_client(server.timeout_seconds), server.timeout_seconds

    def __call__(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most ``k`` passages for each query, in order.

        Raises:
            ServiceUnavailable: the server does not answer, or may answer later.
            HarrError: it refuses the queries, or its answer is none of Search-R1.
        """
        try:
            body = {"queries": [*queries], "topk": k, "return_scores": True}
            reply = call_within(self._seconds + 1.0, lambda: self._client.post(self._url, json=body))
        except (httpx.HTTPError, TimeoutError) as error:
            raise ServiceUnavailable(f"{self._address} does not answer ({one_line(error)})") from None
        if is_transient(reply.status_code):
            raise ServiceUnavailable(f"{self._address} is overloaded or out of order (HTTP {reply.status_code})")
        if reply.status_code != 200:
            raise HarrError(f"{self._address} refuses the queries (HTTP {reply.status_code}: {one_line(reply.text)})")
        try:
            lists = [[passage_of(hit) for hit in hits[:k]] for hits in reply.json()["result"]]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise self._misfit(reply.text) from None
        if len(lists) != len(queries):
            raise self._misfit(f"{len(lists)} lists for {len(queries)} queries")
        return lists

    def _misfit(self, answer: str) -> HarrError:
        return HarrError(
            f"{self._address} answers {one_line(answer, 60)!r}; expected a list per query as "
            '{"result": [[{"document": {"contents": ...}, "score": ...}]]}'
        )


def passage_of(hit: dict[str, Any]) -> Passage:
    """Return the passage of a hit. Its id is the document's, or without one a hash of its contents.

    >>> passage_of({"document": {"id": 7, "contents": '"Ada Brown"\\nBorn in Bath.'}, "score": 0.5})
    Passage(id='7', text='Born in Bath.', title='Ada Brown', source='')
    >>> passage_of({"contents": "Bath is a town."})
    Passage(id='bd1cc02e37e5d2ce', text='Bath is a town.', title='', source='')
    """
    document = hit.get("document", hit)
    contents: str = document["contents"]
    first, _, rest = contents.partition("\n")
    quoted = len(first) > 1 and first.startswith('"') and first.endswith('"')
    name = document.get("id")
    name = hashlib.sha256(contents.encode("utf-8", "replace")).hexdigest()[:16] if name is None else str(name)
    return Passage(name, rest, first[1:-1]) if quoted else Passage(name, contents)


def document_of_passage(passage: Passage) -> dict[str, str]:
    """Return a passage as a document that :func:`passage_of` reads.

    >>> document_of_passage(Passage("7", "Born in Bath.", "Ada Brown"))["contents"]
    '"Ada Brown"\\nBorn in Bath.'
    """
    return {
        "id": passage.id,
        "title": passage.title,
        "text": passage.text,
        "contents": f'"{passage.title}"\n{passage.text}',
    }
