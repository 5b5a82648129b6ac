"""Sections ``retriever``, ``evaluate`` and ``lengths`` of params.yaml. See ``harr/params.py`` for all the others."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harr.datasets import Positive, Section


class Retriever(Section):
    """The player that finds: a state in, K of N passages out. It learns, unless train.method lets another learn."""

    k: Positive = 3
    pool: Positive = 30
    """N: how many nearest passages compete."""
    search: Literal["dense", "sparse", "hybrid"] = "dense"
    """Which passages are nearest: by vector, by BM25 of the query's words, or by both, fused by rank. A retriever that
    learns draws its pool from this search, and then scores and chooses by vectors; one that does not learn returns
    the first K of the ranking as it is."""
    fusion: Literal["weighted", "rrf"] = "weighted"
    """Of hybrid: each side gives weight / rank (``weights``), or 1 / (60 + rank)."""
    weights: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (0.8, 0.2)
    """Of the dense and of the sparse ranking, for fusion: weighted."""
    temperature: float = Field(0.05, gt=0)
    candidates: Literal["corpus", "question"] = "corpus"
    """Search the whole corpus, or only the passages given with the question."""
    positions: Literal["none", "absolute", "random", "relative"] = "none"
    """How a tower of actions is told where a sentence stands (train.method pqn; ``harr/policies/value.py``)."""
    state: Literal["json", "sep"] = "json"
    """History as HARR writes it (labelled lines, JSON hops) or as Q-RAG does (joined by [SEP])."""
    max_tokens: int = Field(256, ge=16)
    """Length limit of the state text; the oldest hops are dropped first."""

    @model_validator(mode="after")
    def _k_fits_pool(self) -> "Retriever":
        if self.k > self.pool:
            raise ValueError(
                f"k = {self.k} passages cannot be chosen from a pool of {self.pool}; lower k or raise pool"
            )
        return self


Arm = Literal[
    "bm25", "frozen", "hybrid", "history", "rl_no_history", "infonce", "no_positions", "base", "warmstart", "full"
]


class Evaluate(Section):
    """Greedy play of every arm on the same questions."""

    max_questions: int = Field(0, ge=0)
    """0: all test questions."""
    arms: tuple[Arm, ...] = ("bm25", "frozen", "history", "full")
    seeds: Positive = 3
    """How often every trained arm is trained, each time with another seed."""
    candidates: tuple[Literal["corpus", "question"], ...] = ("corpus",)
    """Where to search; metrics of ``question`` carry the prefix ``given_``."""
    pass_at: tuple[Positive, ...] = ()
    """Also sample every question, and report the share solved by at least one of k samples."""
    samples: Positive = 8
    batch_size: Positive = 512
    resamples: Positive = 10_000

    @model_validator(mode="after")
    def _can_be_played(self) -> "Evaluate":
        if not self.arms:
            raise ValueError("arms is empty; name at least one, e.g. [frozen, full]")
        if self.pass_at and max(self.pass_at) > self.samples:
            raise ValueError(f"pass_at {max(self.pass_at)} needs as many samples, found {self.samples}; raise samples")
        return self


class Lengths(Section):
    """Evaluation over lengths (`python -m flows.lengths`); options of the command go first."""

    sentences: tuple[Positive, ...] = (100, 1000, 10_000, 40_000)
    """40,000 sentences of a book are about a million tokens; of the fictional encyclopaedia, 350,000."""
    questions: int = Field(0, ge=0)
    """Stories; 0: as many as the run's test split."""
    seed: int = Field(1, ge=0)
