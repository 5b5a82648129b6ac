"""Search at test time: a language model samples several episodes of a question, and one is chosen.

The majority of the answers decides (self-consistency, arXiv 2203.11171), or a model that grades.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from harr.characters import normalise
from harr.evaluate.play import Game
from harr.types import Episode, Generator, Question
from tasks.samples import Player, Playing

Group = tuple[Episode, ...]
"""The episodes of one question."""


def play_samples(
    questions: Sequence[Question], game: Game, samplers: Sequence[Generator], *, batch_size: int
) -> list[Group]:
    """Play every question once with each sampling generator in ``samplers``; return the episodes of each question."""
    rounds = [
        replace(game, generator=sampler, desc=f"{game.desc}: sample {number}/{len(samplers)}").play(
            questions, batch_size=batch_size
        )
        for number, sampler in enumerate(samplers, start=1)
    ]
    return list(zip(*rounds, strict=True))


def majority(group: Group) -> Episode:
    """Return the first episode with the most frequent answer; empty answers count only if there are no others.

    >>> from harr.types import Outcome
    >>> group = [Episode(Question("q", "Who?"), outcome=Outcome(answer)) for answer in ("", "Ada", "Ben", "ada.", "")]
    >>> majority(tuple(group)).answer, majority(tuple(group[:1])).answer
    ('Ada', '')
    """
    answers = [normalise(episode.answer or "") for episode in group]
    counts = Counter(filter(None, answers))
    return group[answers.index(max(counts, key=lambda answer: counts[answer]))] if counts else group[0]


def by_majority() -> Player:
    """Return the player that takes the most frequent answer of the samples, the arm majority."""

    def play(playing: Playing) -> tuple[list[Episode], list[Group]]:
        groups = play_samples(playing.questions, playing.game, playing.samplers, batch_size=playing.batch_size)
        return [majority(group) for group in groups], groups

    return play
