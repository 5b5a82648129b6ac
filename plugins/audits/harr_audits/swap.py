"""The evidence swap: questions are answered again with passages found for another question.

After Proof-of-Use (arXiv 2510.10931): an answer that stays the same whatever is read was not drawn from it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harr.characters import states_answer
from harr.evaluate.play import Game
from harr.evaluate.summary import contrast
from harr.rag.scoring.terms import answer_f1
from harr.types import Episode, Passage, Question, Retrieval, Search

SAMPLE = 50
"""Number of questions answered again."""
FEWEST = 10
"""Number of questions below which no statement is made."""


@dataclass
class Swapped:
    """A retriever that returns, search by search, what was found for another question."""

    found: Mapping[str, Sequence[Sequence[Passage]]]
    """By question id, the passages of every search of the other question."""
    _asked: Counter[str] = field(default_factory=Counter)

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the passages of the other question's next search, starting again after its last."""
        return [self._next(search) for search in searches]

    def _next(self, search: Search) -> Retrieval:
        name = search.question.id
        found = self.found[name][self._asked[name] % len(self.found[name])]
        self._asked[name] += 1
        return Retrieval(tuple(passage for passage in found if passage.id not in search.exclude_ids))


def donors(episodes: Sequence[Episode], seed: int) -> dict[Question, Sequence[Sequence[Passage]]]:
    """Return SAMPLE questions whose answers are at least partly right, each with passages that another one found.

    They are drawn by a seed. The other question is the next one whose passages state no answer to this question.
    """
    right = [n for n, episode in enumerate(episodes) if episode.steps and answer_f1(episode)]
    chosen: dict[Question, Sequence[Sequence[Passage]]] = {}
    for number in np.random.default_rng([seed, 50]).permutation(right):
        golds = episodes[number].question.answers
        others = [*episodes[number + 1 :], *episodes[:number]]
        other = next((one for one in others if one.retrieved and not _states(one, golds)), None)
        if other and len(chosen) < SAMPLE:
            chosen[episodes[number].question] = [step.retrieval.passages for step in other.steps]
    return chosen


def _states(episode: Episode, golds: Sequence[str]) -> bool:
    return any(states_answer(passage.content, golds) for passage in episode.retrieved)


def swap(
    game: Game, episodes: Sequence[Episode], *, batch_size: int, resamples: int, seed: int
) -> dict[str, float | str]:
    """Return by how much answer F1 falls with another question's passages: ``{fall, low, high, own, swapped, n}``.

    ``game`` is the one that ``episodes`` were played in; its retriever is not asked. If nothing can be said,
    ``not_asked`` says why.
    """
    if all(episode.answer is None for episode in episodes):
        return {"not_asked": "the pipeline gives no answers"}
    given = donors(episodes, seed)
    if len(given) < FEWEST:
        return {"not_asked": f"only {len(given)} answers after a search were right in part, {FEWEST} are needed"}
    retriever = Swapped({question.id: found for question, found in given.items()})
    again = replace(game, desc=f"{game.desc}, evidence swapped", retriever=retriever)
    after = _rows(again.play(list(given), batch_size=batch_size))
    before = _rows([episode for episode in episodes if episode.question in given])
    gain = contrast([before], [after], resamples=resamples, seed=seed)["answer_f1"]
    own, swapped = (sum(row["answer_f1"] for row in rows) / len(rows) for rows in (before, after))
    figures = {"fall": gain["gain"], "low": gain["low"], "high": gain["high"], "own": own, "swapped": swapped}
    return {**figures, "n": float(len(given))}


def _rows(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    return [{"id": episode.question.id, "answer_f1": answer_f1(episode)} for episode in episodes]
