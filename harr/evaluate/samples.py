"""Search at test time: a language model plays a question several times by chance, and one episode is chosen.

Whoever chooses sees no gold answer: a majority of the answers (self-consistency, arXiv 2203.11171), or a model that
grades each by the passages that were found for it (best of n). ``pass@k`` is what a perfect choice among k would reach.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from harr.evaluate.play import Game
from harr.rag.pipelines.replies import chat, passages_text
from harr.rag.scoring.judge import grade_of
from harr.rag.scoring.text import normalise
from harr.types import Episode, Generate, Generator, Question

Group = tuple[Episode, ...]
"""The episodes of one question."""


def play_samples(
    questions: Sequence[Question], game: Game, writers: Sequence[Generator], *, batch_size: int
) -> list[Group]:
    """Play every question once by each of ``writers``, which sample; return the episodes of each question."""
    rounds = [
        replace(game, generator=writer, desc=f"{game.desc}: sample {number}/{len(writers)}").play(
            questions, batch_size=batch_size
        )
        for number, writer in enumerate(writers, start=1)
    ]
    return list(zip(*rounds, strict=True))


def majority(group: Group) -> Episode:
    """Return the first episode with the most frequent answer; one that gives none counts only among such.

    >>> from harr.types import Outcome
    >>> told = [Episode(Question("q", "Who?"), outcome=Outcome(answer)) for answer in ("", "Ada", "Ben", "ada.", "")]
    >>> majority(tuple(told)).answer, majority(tuple(told[:1])).answer
    ('Ada', '')
    """
    answers = [normalise(episode.answer or "") for episode in group]
    counts = Counter(filter(None, answers))
    return group[answers.index(max(counts, key=lambda answer: counts[answer]))] if counts else group[0]


def best_of(groups: Sequence[Group], judge: Generator) -> list[Episode]:
    """Return the episode of each group whose answer ``judge`` grades best, of equals the more frequent answer.

    It reads the question, what the episode has found, and the answer. A grade that cannot be read is 0.
    """
    asked = {_key(episode): _request(episode) for group in groups for episode in group if episode.answer}
    replies = judge.complete(list(asked.values())) if asked else []
    grades = {key: grade_of(reply) or 0.0 for key, reply in zip(asked, replies, strict=True)}
    chosen = []
    for group in groups:
        counts = Counter(normalise(episode.answer or "") for episode in group if episode.answer)
        rank = [(grades.get(_key(one), -1.0), counts[normalise(one.answer or "")]) for one in group]
        chosen.append(group[rank.index(max(rank))])
    return chosen


def written_tokens(group: Group, tokens: Callable[[str], int]) -> float:
    """Return how many tokens the model wrote in all episodes of a question."""
    return float(sum(tokens(str(turn.completion)) for episode in group for turn in episode.turns))


def _key(episode: Episode) -> tuple[str, ...]:
    return (episode.question.id, episode.answer or "", *(passage.id for passage in episode.retrieved))


def _request(episode: Episode) -> Generate:
    """Return what the judge is asked. The answer is one JSON string, which writes no lines of its own into it."""
    answer = json.dumps(episode.answer, ensure_ascii=False)
    passages, _ = passages_text(episode.retrieved)
    return chat("choose", question=" ".join(episode.question.text.split()), passages=passages, answer=answer)
