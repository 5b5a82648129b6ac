"""Play arms: every question greedily, or several times with sampling."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from harr.arms import Arm
from harr.evaluate.rows import Row, question_rows
from harr.io.progress import bar
from harr.preferences.few_shot import hop_metrics
from harr.rag.pipelines.leret import LeReT, add_answers
from harr.rag.policies.dense import DensePolicy
from harr.rag.rollout import play
from harr.rag.scoring.ranking import all_gold
from harr.rag.scoring.terms import answer_em
from harr.types import Episode, Generator, Pipeline, Question, Retriever


@dataclass(frozen=True)
class ArmRun:
    """One run of an arm; a trained arm has one per seed.

    >>> str(ArmRun("trained", Arm("was trained by reward"), 2, Path("models/arms/trained-2")))
    'trained-2'
    """

    name: str
    arm: Arm
    number: int
    folder: Path | None
    """The folder of its trained model; None if it was not trained."""

    def __str__(self) -> str:
        return f"{self.name}-{self.number}"


@dataclass(frozen=True)
class Game:
    """One run's players, ready to play; ``desc`` names the run in the progress bar."""

    desc: str
    pipeline: Pipeline
    retriever: Retriever
    generator: Generator | None
    reader: Generator | None = None
    """The model that answers from what a pipeline without answers (LeReT's) found."""

    def play(self, questions: Sequence[Question], *, batch_size: int) -> list[Episode]:
        """Play all questions, ``batch_size`` at a time; one episode each, in order."""
        episodes: list[Episode] = []
        with bar(total=len(questions), desc=self.desc, unit="question") as progress:
            for start in range(0, len(questions), batch_size):
                batch = questions[start : start + batch_size]
                episodes += play(batch, self.pipeline, self.retriever, self.generator, ended=progress.update)
        if self.reader is None or not isinstance(self.pipeline, LeReT):
            return episodes
        return add_answers(episodes, self.pipeline, self.reader, batch_size=batch_size, desc=f"{self.desc}: answers")

    def rows(
        self, episodes: Sequence[Episode], terms: Sequence[Mapping[str, float]], *, picking: bool = False
    ) -> list[Row]:
        """Return one row of metrics per question; for LeReT with recall and average precision after every hop."""
        rows = question_rows(episodes, terms, picking=picking)
        if isinstance(self.pipeline, LeReT):
            return [row | hop_metrics(episode, self.pipeline) for row, episode in zip(rows, episodes, strict=True)]
        return rows


def pass_rates(
    questions: Sequence[Question],
    game: Game,
    *,
    samples: int,
    ks: Sequence[int],
    seed: int,
    temperature: float | None = None,
) -> dict[str, Row]:
    """Return pass@k per question id: the chance that one of k sampled episodes is right, from ``samples`` of them.

    It is empty if the retriever cannot sample. Right means an exactly matching answer or, if the pipeline
    gives none, all gold passages found. A ``temperature`` replaces training's.
    """
    if not isinstance(game.retriever, DensePolicy):
        return {}
    generator = torch.Generator().manual_seed(seed)
    sampled = replace(game.retriever, sampling=generator, temperature=temperature or game.retriever.temperature)
    repeats = [question for question in questions for _ in range(samples)]
    with bar(total=len(repeats), desc=f"{game.desc}: pass@k", unit="episode") as progress:
        episodes = play(repeats, game.pipeline, sampled, game.generator, ended=progress.update)
    return rates([episodes[start : start + samples] for start in range(0, len(episodes), samples)], ks)


def rates(groups: Sequence[Sequence[Episode]], ks: Sequence[int]) -> dict[str, Row]:
    """Return pass@k per question id from every question's episodes."""
    answering = any(episode.answer is not None for group in groups for episode in group)
    right = answer_em if answering else all_gold
    counts = {group[0].question.id: (len(group), sum(right(episode) == 1.0 for episode in group)) for group in groups}
    return {name: {f"pass_at_{k}": pass_at(*count, k) for k in ks} for name, count in counts.items()}


def pass_at(samples: int, right: int, k: int) -> float:
    """Return the unbiased estimate of pass@k: 1 - C(n - c, k) / C(n, k) (arXiv 2107.03374, eq. 1).

    >>> [pass_at(4, 1, k) for k in (1, 2, 4)]
    [0.25, 0.5, 1.0]
    """
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)
