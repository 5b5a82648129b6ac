"""The service behind the routes of `harr serve` and its MCP tool: batches requests for a searcher."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harr import __version__
from harr.errors import ParamsError
from harr.params.functions import function_of
from harr.serve.bodies import SearchBody
from harr.serve.follower import Follower
from harr.serve.microbatch import MicroBatcher
from harr.serve.monitor import Monitor
from harr.serve.observer import Answered, Observer
from harr.serve.searcher import Answer, Ask, Searcher
from harr.types import Passage

OBSERVER = "takes the service and a text, and returns an Observer (harr/serve/observer.py)"
"""What a function named by ``--observer`` does."""


class RetrieverService:
    """The service behind the routes and the MCP tool: batches requests for a searcher."""

    def __init__(
        self,
        searcher: Searcher,
        follower: Follower,
        *,
        room: int,
        observers: Sequence[str] = (),
    ) -> None:
        """Take a searcher and its follower.

        ``observers`` are values of ``--observer`` (harr/serve/observer.py).

        Raises:
            HarrError: an observer cannot be imported, or refuses to start.
        """
        self.searcher, self.follower, self.monitor = searcher, follower, Monitor()
        self.batches: MicroBatcher[Ask, Answer] = MicroBatcher(self._answer, room=room)
        self.observers: dict[str, Observer] = {}
        for word in observers:
            name, _, text = word.partition("=")
            self.observers[word] = function_of(name, key="--observer", shape=OBSERVER, takes=2)(self, text)

    async def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """Return the current model's answers."""
        return await self.batches.ask(asks)

    async def search(self, body: SearchBody) -> dict[str, Any]:
        """Return the passages for one search.

        Raises:
            ParamsError: nothing is asked.
        """
        serving = self.searcher.serving
        search = body.search(statuses=bool(serving and serving.statuses))
        if not (search.query or search.question.text):
            raise ParamsError("nothing is asked; the last message has no text")
        kept = [one.first_kept() for one in self.observers.values()] if body.model == "champion" else []
        [answer] = await self.ask([Ask(body.model, search, next((count for count in kept if count is not None), None))])
        retrieval = answer.found
        assert retrieval is not None
        if retrieval.kept == len(retrieval.passages):
            retrieval = replace(retrieval, pool=(), logprob=None, kept=0)  # nothing was sampled
        response = {
            "passages": [_passage(passage, score) for passage, score in retrieval.scored],
            "state": retrieval.state,
            "model": body.model,
            "version": answer.version,
        }
        if search.hops and answer.trained_on:
            response["trained_on"] = answer.trained_on
        for observer in self.observers.values():
            observer.answered(Answered(body, answer.version, answer.corpus, answer.reads, retrieval, response))
        return response

    def health(self) -> dict[str, Any]:
        """Return the server's status."""
        serving = self.searcher.serving
        return {
            "status": "ok" if serving else "loading",
            "model": self.follower.model,
            "version": serving.version if serving else "",
            "since": serving.since if serving else 0.0,
            "changes": self.follower.changes,
            "problem": self.follower.problem,
            "passages": self.searcher.passages,
            "index": self.searcher.index,
            "waiting": self.batches.waiting,
            "observers": {name: observer.health() for name, observer in self.observers.items()},
            "harr": __version__,
        }

    def close(self) -> None:
        """Answer the waiting requests and close everything."""
        self.follower.close()
        self.batches.close()
        for observer in self.observers.values():
            observer.close()
        self.searcher.close()

    def _answer(self, asks: Sequence[Ask]) -> list[Answer]:
        self.monitor.batch.observe(len(asks))
        return self.searcher.answer(asks)


def _passage(passage: Passage, score: float | None) -> dict[str, Any]:
    rounded = None if score is None else round(score, 6)
    fields = {"id": passage.id, "title": passage.title, "text": passage.text, "score": rounded}
    return fields | ({"source": passage.source} if passage.source else {})
