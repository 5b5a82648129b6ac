"""Questions to show: two arms' plays of the same ones side by side."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from harr.arms import TRAINED
from harr.rag.scoring.ranking import all_gold
from harr.rag.scoring.terms import answer_em
from harr.types import Episode

Row = dict[str, Any]


def trajectories(
    episodes_by_arm: Mapping[str, Sequence[Episode]], count: int = 3, *, baseline: str = "frozen", seed: int = 0
) -> Row:
    """Choose questions to show side by side: the ``baseline`` (or the first arm) against ``trained`` (or the last).

    Chosen at random within a kind: questions the last arm gained (right where the first was wrong),
    the last place for one it lost, and then questions with both wrong or both right. *Right* means
    an exactly matching answer or, where the pipeline gives no answers, all gold passages found.

    Returns:
        ``{arms: [first, last], right, counts: {kind: questions}, examples: [{kind, id, question,
        gold_answers, arms: {arm: {answer, right, hops: [{sub_query, answer, status, passages:
        [{id, title, text, is_gold}]}]}}}]}``, ready for JSON.
    """
    names = list(episodes_by_arm)
    first = baseline if baseline in names else names[0]
    last = TRAINED if TRAINED in names else names[-1]
    arms = {arm: {episode.question.id: episode for episode in episodes_by_arm[arm]} for arm in (first, last)}
    by_answer = any(episode.answer is not None for side in arms.values() for episode in side.values())
    right = answer_em if by_answer else all_gold
    kinds: dict[str, list[str]] = {"gained": [], "lost": [], "both_wrong": [], "both_right": []}
    names_of = {(0.0, 1.0): "gained", (1.0, 0.0): "lost", (0.0, 0.0): "both_wrong", (1.0, 1.0): "both_right"}
    for key, episode in arms[first].items():
        if key in arms[last] and (before := right(episode)) is not None:
            after = right(arms[last][key]) or 0.0
            kinds[names_of[before, after]].append(key)
    chance = random.Random(seed)
    for keys in kinds.values():
        chance.shuffle(keys)
    choice = [(kind, key) for kind in ("gained", "both_wrong", "both_right") for key in kinds[kind]]
    place = min(max(1, count - 1), len(kinds["gained"]))  # one loss is shown whenever there is one
    choice[place:place] = [("lost", key) for key in kinds["lost"][:1]]
    return {
        "arms": list(arms),
        "right": "the answer matches exactly" if by_answer else "all gold passages were found",
        "counts": {kind: len(keys) for kind, keys in kinds.items()},
        "examples": [
            {
                "kind": kind,
                "id": key,
                "question": arms[first][key].question.text,
                "gold_answers": list(arms[first][key].question.answers),
                "arms": {arm: _side(side[key], right(side[key]) == 1.0) for arm, side in arms.items()},
            }
            for kind, key in choice[:count]
        ],
    }


def _side(episode: Episode, right: bool) -> Row:
    """Return one arm's play of a question. A hop's answer belongs to the step that asked the same sub-query."""
    gold = set(episode.question.gold_ids)
    pending = list(episode.outcome.hops)
    hops: list[Row] = []
    for step in episode.steps:
        hop = pending.pop(0) if pending and pending[0].query == step.search.query else None
        passages = [
            {"id": p.id, "title": p.title, "text": p.text, "is_gold": p.id in gold} for p in step.retrieval.passages
        ]
        hops.append(
            {
                "sub_query": step.search.query,
                "answer": hop.answer if hop else "",
                "status": hop.status if hop else "",
                "passages": passages,
            }
        )
    return {"answer": episode.answer, "right": right, "hops": hops}
