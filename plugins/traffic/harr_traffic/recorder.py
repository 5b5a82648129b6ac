"""What `harr serve` answered, and its outcome: ``--observer harr_traffic.recorder:Recorder=FOLDER,explore=0.05``.

Every answer of ``/search`` then has an ``id``, with which the application reports the outcome to ``/outcome``.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from harr.errors import ParamsError
from harr.params.faults import read_section
from harr.serve.bodies import MAX_PASSAGES, Text, read_body
from harr.serve.observer import Answered, Observer
from harr.serve.service import RetrieverService
from harr.types import Passage
from harr_traffic.log import Feedback, LoggedSearch, Recording, TrafficLog, new_id, now


class OutcomeBody(BaseModel):
    """The outcome of a search: a score, whether its answer was accepted, or the passages that were opened."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(min_length=1, max_length=64)]
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    accepted: bool | None = None
    clicked: Annotated[list[Text], Field(max_length=MAX_PASSAGES)] | None = None

    @model_validator(mode="after")
    def _says(self) -> "OutcomeBody":
        if self.score is None and self.accepted is None and self.clicked is None:
            raise ValueError("no outcome is given; send a score, accepted or clicked")
        return self

    @property
    def worth(self) -> float:
        """Return the score; without one, 1 or 0 by whether the answer was accepted or, failing that, clicked."""
        if self.score is not None:
            return self.score
        return float(bool(self.clicked) if self.accepted is None else self.accepted)


class Recorder(Observer):
    """A log of searches and outcomes; a share of the searches explores.

    Args:
        service: the server whose answers are logged.
        text: a folder, then settings of :class:`Recording` after commas, such as ``traffic,explore=0.05,days=7``.
    """

    def __init__(self, service: RetrieverService, text: str) -> None:
        """Open the log.

        Raises:
            ParamsError: a setting is unknown or wrong, or the folder cannot be written.
        """
        folder, *settings = text.split(",")
        if not folder.strip():
            raise ParamsError("--observer harr_traffic.recorder:Recorder names no folder; add =FOLDER")
        values = {name.strip(): value for name, _, value in (setting.partition("=") for setting in settings)}
        self.recording = read_section(
            Recording, {"folder": Path(folder.strip()).expanduser(), **values}, "--observer Recorder"
        )
        self.log = TrafficLog(self.recording)
        self._problem = ""

    def first_kept(self) -> int | None:
        """Return, for a share of the searches, how many first passages stay the best."""
        return self.recording.explore_after if random.random() < self.recording.explore else None

    def answered(self, one: Answered) -> None:
        """Log a search, and add the id by which the application refers to it."""
        name, hits, search = new_id(), one.found, one.body.search(statuses=False)
        chosen, pool = _ids(hits.passages), _ids(one.corpus.passages.take(hits.pool))
        texts = search.question.text, search.query, hits.state
        row = LoggedSearch(name, now(), one.version, one.reads, *texts, chosen, pool, hits.logprob, hits.kept)
        try:
            self.log.add_search(row)
        except OSError as error:  # an answer does not depend on the disk; without an id it takes no outcome
            self._problem = f"{self.recording.folder}: {error.strerror}"
            return
        self._problem = ""
        one.response["id"] = name

    def routes(self) -> Sequence[BaseRoute]:
        """Return the route that takes outcomes."""
        return (Route("/outcome", self._take_outcome, methods=["POST"]),)

    async def _take_outcome(self, request: Request) -> JSONResponse:
        body = read_body(OutcomeBody, await request.body())
        try:
            self.log.outcome(Feedback(body.id, now(), body.worth, tuple(body.clicked or ())))
        except OSError as error:
            return JSONResponse({"error": f"the outcome was not kept ({error.strerror}); send it again"}, 503)
        return JSONResponse({"kept": True})

    def health(self) -> dict[str, Any]:
        """Return where the log is, and why the last search was not logged."""
        return {"folder": str(self.recording.folder), "problem": self._problem}


def _ids(passages: Sequence[Passage]) -> tuple[str, ...]:
    return tuple(passage.id for passage in passages)
