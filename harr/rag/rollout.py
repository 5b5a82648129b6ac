"""Play pipelines: many generators advance together, and all pending requests of a kind are one batch."""

from collections.abc import Callable, Generator as PyGenerator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from harr.errors import ParamsError
from harr.types import (
    Episode,
    Generate,
    Generator,
    Outcome,
    Pipeline,
    Question,
    Request,
    Retrieval,
    Retriever,
    Search,
    Step,
    Turn,
)


@dataclass(slots=True)
class _Game:
    """A pipeline in flight: its generator, the request it waits on, and the steps so far."""

    question: Question
    moves: PyGenerator[Request, Retrieval | str | list[Retrieval], Outcome]
    request: Request | None = None
    steps: list[Step] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def advance(self, answer: Any) -> None:
        """Send an answer (None starts the pipeline) and store the next request; None at the end.

        Raises:
            ParamsError: an external pipeline yields or returns the wrong type.
        """
        if isinstance(self.request, Search):
            self.steps.append(Step(self.request, answer))
        elif isinstance(self.request, tuple):
            self.steps.extend(map(Step, self.request, answer))
        elif self.request is not None:
            self.turns.append(Turn(self.request, answer))
        try:
            self.request = self.moves.send(answer)
        except StopIteration as end:
            self.request, self.outcome = None, end.value
            if not isinstance(end.value, Outcome):
                raise ParamsError(f"the pipeline returned {end.value!r}; return an Outcome (harr/types.py)") from None
        else:
            requests = self.request if isinstance(self.request, tuple) else (self.request,)
            allowed = Search if isinstance(self.request, tuple) else Search | Generate
            if not all(isinstance(request, allowed) for request in requests):
                raise ParamsError(
                    f"the pipeline yielded {self.request!r}; yield a Search, a Generate or a tuple of Searches"
                )


def play(
    questions: Sequence[Question],
    pipeline: Pipeline,
    retriever: Retriever,
    generator: Generator | None,
    *,
    ended: Callable[[int], object] = lambda count: None,
) -> list[Episode]:
    """Play every question to its end and return one episode per question, in order.

    All pending searches form one ``retrieve`` call and all pending texts one ``complete`` call, whatever the number of
    questions. ``ended`` is called with the number of episodes that just ended. To sample a group, repeat the question.

    Raises:
        RuntimeError: the pipeline asks for text and there is no ``generator``.
    """
    games = [_Game(question, pipeline(question)) for question in questions]
    for game in games:
        game.advance(None)
    waiting = games
    while waiting:
        playing = [game for game in waiting if game.request is not None]
        ended(len(waiting) - len(playing))
        waiting = playing
        _answer(waiting, retriever, generator)
    return [Episode(game.question, tuple(game.steps), game.outcome, tuple(game.turns)) for game in games]


def _answer(games: Sequence[_Game], retriever: Retriever, generator: Generator | None) -> None:
    """Answer all pending searches in one batch or, where there are none, all requests for text.

    While some games search, requests for text wait: they join those about the results, in fewer and larger batches.
    """
    searching = [(game, game.request) for game in games if isinstance(game.request, Search | tuple)]
    writing = [(game, game.request) for game in games if isinstance(game.request, Generate)]
    if searching:
        _search(searching, retriever)
    elif writing:
        if generator is None:
            raise RuntimeError("this pipeline needs a generator; set generator.kind in params.yaml")
        texts = generator.complete([replace(request, past=tuple(game.turns)) for game, request in writing])
        for (game, _), text in zip(writing, texts, strict=True):
            game.advance(text)


def _search(searching: Sequence[tuple[_Game, Search | tuple[Search, ...]]], retriever: Retriever) -> None:
    """Answer the searches of all games in one call; a game with several searches at once gets a list."""
    batches = [request if isinstance(request, tuple) else (request,) for _, request in searching]
    pending = [search for searches in batches for search in searches]
    retrievals = retriever.retrieve(pending) if pending else []
    if len(retrievals) != len(pending):
        raise ValueError(f"{len(pending)} searches were answered by {len(retrievals)} retrievals")
    remaining = iter(retrievals)
    answers = [list(islice(remaining, len(searches))) for searches in batches]
    for (game, request), answer in zip(searching, answers, strict=True):
        game.advance(answer if isinstance(request, tuple) else answer[0])
