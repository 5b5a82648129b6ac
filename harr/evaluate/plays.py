"""An evaluation's questions as data for the report: what each arm scored, searched, found and answered.

Repeated texts are stored once: passages by id, queries and answers by their place in a list. What would make
the page larger than :data:`BYTES` is left out, and the page says how much.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harr.arms import TRAINED
from harr.evaluate.summary import Summary, baseline_of, headline, rival_of
from harr.evaluate.tables import is_share, label
from harr.types import Episode

BYTES = 2_000_000
LISTED = 10_000
"""Maximum number of questions in the table; a random sample if there are more."""
LENGTHS = (600, 300, 150, 80)
"""Maximum characters of a passage: the first of these with which everything fits."""
QUESTION, ANSWER = 400, 200
"""Maximum characters of a question or query, and of an answer."""

Row = Mapping[str, Any]
Episodes = Mapping[str, Sequence[Episode]]


@dataclass
class Table:
    """Distinct texts by number."""

    places: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str | None, most: int = ANSWER) -> int:
        """Return the number of a text, truncated to ``most`` characters; -1 for None."""
        if text is None:
            return -1
        return self.places.setdefault(cut(text, most), len(self.places))


def plays_of(summary: Summary, rows: Mapping[str, Sequence[Row]], episodes: Episodes) -> dict[str, Any]:
    """Return the question table in the leading metric, ``trained`` next to its baseline or its strongest rival.

    Args:
        summary: as :func:`harr.evaluate.summary.summarise` returns it.
        rows: question rows of each arm's first run.
        episodes: the episodes of the same runs.
    """
    lead = headline(summary)
    pair = (baseline_of(summary) or rival_of(summary, lead), TRAINED)
    return question_table(rows, episodes, metric=lead, words=label(lead), share=is_share(lead), pair=pair)


def cut(text: str, most: int) -> str:
    """Truncate a text to at most ``most`` characters; a longer one ends in an ellipsis.

    >>> cut("abcdef", 4), cut("abcd", 4)
    ('abc…', 'abcd')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def question_table(
    rows: Mapping[str, Sequence[Row]],
    episodes: Episodes,
    *,
    metric: str,
    words: str,
    share: bool,
    pair: tuple[str, str],
    most: int = BYTES,
) -> dict[str, Any]:
    """Return the data of the question table, at most about ``most`` bytes of JSON.

    Args:
        rows: question rows of each arm's first run.
        episodes: the episodes of the same runs.
        metric: the metric to show.
        words: its name.
        share: whether it is shown in percent.
        pair: the two arms that are compared first.
        most: approximate maximum of JSON bytes.
    """
    arms = [arm for arm in episodes if arm in rows]
    if not arms:
        return {}
    ids = list(dict.fromkeys(row["id"] for arm in arms for row in rows[arm]))
    sample = set(random.Random(0).sample(ids, min(LISTED, len(ids))))
    listed = [key for key in ids if key in sample]
    first, second = (name if name in arms else arms[end] for name, end in zip(pair, (0, -1), strict=True))
    head: dict[str, Any] = {"metric": words, "share": share, "arms": arms, "a": first, "b": second, "asked": len(ids)}
    games = {arm: {episode.question.id: episode for episode in episodes[arm]} for arm in arms}
    scores = {arm: {row["id"]: row.get(metric) for row in rows[arm]} for arm in arms}
    order = random.Random(0).sample(listed, len(listed))
    few = list(dict.fromkeys((first, second)))
    counts = [len(order) >> times for times in range(len(order).bit_length())]
    tries = [(arms, length, len(order)) for length in LENGTHS] + [(few, LENGTHS[-1], count) for count in counts]
    for included, length, count in tries:
        data = head | _body(listed, set(order[:count]), games, scores, included, length)
        if len(compact(data).encode()) <= most:
            break
    return data


def _body(
    listed: Sequence[str],
    opened: set[str],
    games: Mapping[str, Mapping[str, Episode]],
    scores: Mapping[str, Mapping[str, float | None]],
    arms: Sequence[str],
    length: int,
) -> dict[str, Any]:
    """Return questions and all that they refer to; plays only for ``arms`` and ``opened`` questions."""
    texts = Table()
    passages: list[list[str]] = []
    places: dict[str, int] = {}

    def place(passage: Any) -> int:
        if passage.id not in places:
            places[passage.id] = len(passages)
            passages.append([passage.id, cut(passage.title, ANSWER), cut(passage.text, length)])
        return places[passage.id]

    def play(episode: Episode) -> list[Any]:
        pending, hops = list(episode.outcome.hops), []
        for step in episode.steps:
            hop = pending.pop(0) if pending and pending[0].query == step.search.query else None
            note = [texts(hop.answer), hop.status] if hop else [-1, ""]
            hops.append([texts(step.search.query, QUESTION), *note, [place(item) for item in step.retrieval.passages]])
        return [texts(episode.answer), hops]

    questions = []
    for key in listed:
        question = next(game[key].question for game in games.values() if key in game)
        plays = {n: play(games[arm][key]) for n, arm in enumerate(games) if arm in arms and key in games[arm]}
        questions.append(
            {
                "id": key,
                "text": cut(question.text, QUESTION),
                "gold": [cut(answer, ANSWER) for answer in question.answers[:5]],
                "ids": list(question.gold_ids[:50]),
                "kind": " ".join(filter(None, (question.setting, question.kind))),
                "scores": [None if (s := by_id.get(key)) is None else round(s, 3) for by_id in scores.values()],
                "plays": plays if key in opened else {},
            }
        )
    body = {"length": length, "opened": min(len(opened), len(listed)), "traced": list(arms)}
    return body | {"questions": questions, "texts": list(texts.places), "passages": passages}


def compact(data: Any) -> str:
    """Return data as JSON without insignificant white space.

    >>> compact({"a": [1, 2]})
    '{"a":[1,2]}'
    """
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
