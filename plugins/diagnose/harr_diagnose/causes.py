"""Why a training gained nothing or did harm: a cause is a row of a table, from the figures of a run to evidence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from scipy import stats

from harr.evaluate.tables import percent, spread

MATTERS = 0.05
"""The gain that training is worth, 5 points: as in advice, less is no reason to act."""
MISLABELLED = 0.1
"""Share of training questions with a false negative. In sound corpora up to 5 % have one (README)."""
UNREACHED = 0.5
"""Share of the gold beyond the pool: as much is out of reach as can be learnt."""
MEMORY = 0.5
"""Share of the reader's right answers that need no passage: then most rewards say nothing about the search."""
EQUAL = 0.9
"""Share of groups with equal rewards; if the rest is under 10 %, advice says that rollouts hardly disagree."""
DRIFTED = 0.8
"""Mean cosine between a query's vectors before and after training; of MiniLM's that gained it stayed above .94."""
STILL = 0.999
"""The same if training hardly moved the encoder: the nearest passages stay the same."""
RISING = 0.05
"""Significance level of the test that the second half of a learning curve rises."""
POINTS = 4
"""Number of points below which no line is fitted to the second half of a curve."""


@dataclass(frozen=True)
class Facts:
    """What is known about a run; shares are between 0 and 1, and what was not measured is empty or None."""

    metric: str
    """The leading metric, in words."""
    baseline: str
    """The arm that `trained` is compared with: what it was before training."""
    gain: Mapping[str, float]
    """Gain of `trained` over it in that metric: gain, low, high, n."""
    train: int
    """Number of training questions."""
    leaked: int
    """Number of test questions that are, or nearly are, a training question."""
    start: Mapping[str, float] = field(default_factory=dict)
    """Gain of training's starting point, the untrained encoder that reads the history, over the baseline."""
    searched: int = 0
    """Number of training questions searched for again."""
    mislabelled: float | None = None
    """Share of these with a passage that is not gold but as right as the gold."""
    pool_recall: float | None = None
    """Share of their gold among the untrained retriever's candidates."""
    general: Mapping[str, float] = field(default_factory=dict)
    """Recall of general queries: before, and its change by training: gain, low, high, n."""
    cosine: float | None = None
    """Mean cosine between a query's vectors before and after training."""
    validation: Sequence[float] = ()
    """The leading metric on validation questions during training, starting before the first step."""
    validated: int = 0
    """Number of validation questions."""
    rewards: Sequence[float] = ()
    """Mean reward of every step, without those of a warm start."""
    equal_rewards: float | None = None
    """Mean share of groups of rollouts with equal rewards."""
    reader: Mapping[str, float] = field(default_factory=dict)
    """Shares of questions answered ``from_memory`` and only ``with_gold``, and their number ``n``."""

    @property
    def paid(self) -> bool:
        """Return whether training surely gained."""
        return self.gain["low"] > 0


Judgement = tuple[bool, str]
"""Whether a cause applies, and the evidence for or against it."""


@dataclass(frozen=True)
class Cause:
    """A reason why a training gained nothing or did harm."""

    name: str
    judge: Callable[[Facts], Judgement | None]
    """Returns None if a fact it needs was not measured."""
    remedy: str
    always: bool = False
    """Whether it counts even if training surely gained."""


def _leak(f: Facts) -> Judgement:
    n = int(f.gain["n"])
    said = f"{f.leaked:,} of {n:,} test questions are, or nearly are, a training question"
    return f.leaked >= MATTERS * n, said


def _false_negatives(f: Facts) -> Judgement | None:
    if f.mislabelled is None:
        return None
    said = (
        f"for {percent(f.mislabelled)} % of {f.searched:,} training questions a passage that is not marked is as right as "
        "the gold"
    )
    return f.mislabelled >= MISLABELLED, said


def _forgetting(f: Facts) -> Judgement | None:
    if not f.general:
        return None
    said = (
        f"recall of {f.general['n']:,.0f} general queries: {percent(f.general['before'])} before, changed by "
        f"{spread(f.general, 'gain', '+.1f')}"
    )
    return f.general["high"] < 0 and f.general["gain"] <= -MATTERS, said


def _start(f: Facts) -> Judgement | None:
    if not f.start:
        return None
    said = f"before training the state with the history stood at {spread(f.start, 'gain', '+.1f')} from {f.baseline}"
    return f.start["high"] < 0 and f.start["gain"] <= -MATTERS, said


def _rate(f: Facts) -> Judgement | None:
    if f.cosine is None or len(f.validation) < 2:
        return None
    best, last = max(f.validation), f.validation[-1]
    said = (
        f"queries keep a cosine of {f.cosine:.2f} with what they were; validation was {percent(best)} at best and "
        f"{percent(last)} at the end (n {f.validated:,})"
    )
    noise = 1 / sqrt(f.validated)  # two standard errors of a share, at most
    return f.cosine < DRIFTED and best - last >= max(MATTERS, noise), said


def _pool(f: Facts) -> Judgement | None:
    if f.pool_recall is None:
        return None
    said = f"{percent(1 - f.pool_recall)} % of the gold of {f.searched:,} training questions never was a candidate"
    return 1 - f.pool_recall >= UNREACHED, said


def _memory(f: Facts) -> Judgement | None:
    if not f.reader:
        return None
    memory, read = f.reader["from_memory"], f.reader["with_gold"]
    said = (
        f"of {f.reader['n']:,.0f} questions the reader answers {percent(memory)} % without any passage, and "
        f"{percent(read)} % only with the gold"
    )
    return memory > 0 and memory >= MEMORY * (memory + read), said


def _equal_rewards(f: Facts) -> Judgement | None:
    if f.equal_rewards is None:
        return None
    said = f"in {percent(f.equal_rewards)} % of the groups of {len(f.rewards):,} steps all rollouts had one reward"
    return f.equal_rewards >= EQUAL, said


def _few_steps(f: Facts) -> Judgement | None:
    if f.cosine is not None and f.cosine > STILL:
        return True, f"queries keep a cosine of {f.cosine:.4f} with what they were ({f.train:,} training questions)"
    curve, name = (f.validation, "validation") if len(f.validation) >= 2 * POINTS else (f.rewards, "the reward")
    half = list(curve[len(curve) // 2 :])
    if len(half) < POINTS:
        return None
    line = stats.linregress(range(len(half)), half, alternative="greater")
    rise = float(line.slope) * (len(half) - 1)
    said = f"in the last {len(half)} of {len(curve)} points {name} changed by {percent(rise, '+.1f')}"
    return rise >= MATTERS and float(line.pvalue) < RISING, said


def _noise(f: Facts) -> Judgement:
    low, high = f.gain["low"], f.gain["high"]
    said = (
        f"{f.gain['n']:,.0f} test questions leave the gain between {percent(low, '+.1f')} and {percent(high, '+.1f')}"
    )
    return low <= 0 <= high and high >= MATTERS, said


CAUSES: tuple[Cause, ...] = (
    Cause("leak", _leak, "set download.near_duplicates: drop, and evaluate again", always=True),
    Cause("forgetting", _forgetting, "fewer steps or a lower train.optimizer.learning_rate", always=True),
    Cause(
        "false negatives",
        _false_negatives,
        "mark these passages as gold, too, or reward answers (answer_f1)",
        always=True,
    ),
    Cause("a worse start", _start, "raise train.warm_start, or train without the history (arm rl_no_history)"),
    Cause("too high a rate", _rate, "lower train.optimizer.learning_rate, and set train.validation.keep: best"),
    Cause("gold beyond the pool", _pool, "raise retriever.pool, or search by words too (retriever.search: hybrid)"),
    Cause("reader knows the answers", _memory, "reward recall of gold, or ask what the reader cannot know"),
    Cause("equal rewards", _equal_rewards, "raise retriever.temperature or train.group_size, or set train.warm_start"),
    Cause("too few steps", _few_steps, "more train.steps or training questions, or a higher learning rate"),
    Cause("too few test questions", _noise, "add test questions; `harr diagnose` says how many"),
)


def explain(facts: Facts) -> list[dict[str, str | bool | None]]:
    """Return every cause with whether it is ``named`` (None: not measured), its ``evidence`` and ``remedy``.

    If training surely gained, only causes that may hide behind a gain are checked.
    """
    rows: list[dict[str, str | bool | None]] = []
    for cause in CAUSES:
        judgement = cause.judge(facts)
        named, evidence = judgement or (None, "")
        asked = cause.always or not facts.paid
        rows.append({"cause": cause.name, "named": named and asked, "evidence": evidence, "remedy": cause.remedy})
    return rows
