"""What to do before paying for training: a rule is a line of a table, from the figures to a sentence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ENOUGH, BETTER_POOL, SIGNAL, SMALL, AMBIGUOUS, READS = 0.9, 0.05, 0.1, 0.05, 0.05, 0.2


@dataclass(frozen=True)
class Figures:
    """The figures of a diagnosis that advice is drawn from; shares are between 0 and 1."""

    metric: str
    """The leading metric, in words."""
    best: str
    """The untrained arm that is best by it, except those that know more than a retriever can."""
    means: Mapping[str, float]
    """Mean of that metric by untrained arm."""
    dense: str
    """The untrained arm that training would start from; empty if it was not played."""
    gain_of_best: Mapping[str, float]
    """Paired gain of the best arm over that one: gain, low, high; empty if they are the same."""
    pool: int
    """Number of passages that compete for a search (``retriever.pool``)."""
    all_gold: Mapping[int, float]
    """By depth, share of questions with all gold among that many first passages of their searches; empty without
    gold."""
    found: float
    """Share of questions with all gold found by the untrained arm that finds most; as for ``best``, no ceiling."""
    later_queries: float
    """Number of queries after a question's first that are not the question itself."""
    ambiguous_share: float
    """Share of these that only the history can tell apart."""
    rolled_out: float
    """Number of questions whose rollouts were compared."""
    disagreeing: float
    """Share of these whose rollouts have different rewards."""
    all_right: float
    """Share of these whose rollouts are all right."""
    detectable: float
    """Smallest gain that the test questions show with a power of 80 %."""
    method: str
    """``train.method`` of params.yaml."""
    needed: int
    """Number of questions needed to show a gain of 5 points."""
    by_share: bool = False
    """Whether ``all_gold`` and ``found`` are shares of the gold, as questions have much of it (nDCG leads)."""
    warm_start: bool = False
    """Whether supervision comes before the reward (``train.warm_start``)."""
    links: bool = False
    """Whether training adds candidates that no untrained arm has (``retriever.link_features``)."""
    served: Literal["yes", "added", "no"] = "yes"
    """Whether `harr promote` accepts the best arm: with this params.yaml, once evaluate.arms names it, or never."""
    language_model: bool = False
    """Whether a language model is trained, not the retriever."""
    last_run: Mapping[str, float] = field(default_factory=dict)
    """Gain of ``trained`` over the best untrained arm in the evaluation here: gain, low, high; empty without one."""

    reader: Mapping[str, float] = field(default_factory=dict)
    """Answer F1 that the reader gains by the gold passages over none: gain, low, high; its F1 with ``gold`` and with
    ``nothing``; and the shares of questions answered ``from_memory`` and only ``with_gold``, with an F1 of at least a
    half. Empty if nobody answers."""

    @property
    def ceiling(self) -> float:
        """Return the share of questions with all gold in the pool: with the same searches no policy finds more."""
        return self.all_gold.get(self.pool, 1.0)

    @property
    def training_paid(self) -> bool:
        """Return whether the last run surely surpassed the best untrained arm."""
        return self.last_run.get("low", 0.0) > 0

    @property
    def rule_leads(self) -> bool:
        """Return whether an untrained arm surely leads what training starts from, and training adds nothing else: no
        history that later queries need, no links.

        Of our eight trainings where this was so, two surely surpassed that arm (README).
        """
        leads = bool(self.gain_of_best) and self.gain_of_best["low"] > 0
        return leads and not (
            self.training_paid or self.links or self.language_model or self.ambiguous_share >= AMBIGUOUS
        )


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _serve(f: Figures) -> str:
    if f.served == "no":
        return ""
    first = f"; add {f.best} to evaluate.arms, and" if f.served == "added" else ";"
    return f"{first} `harr promote --arm {f.best}` and `harr serve` serve {f.best}"


def _enough(f: Figures) -> str:
    if f.means[f.best] < ENOUGH or f.training_paid:
        return ""
    reached = f"without training it reaches {_points(f.means[f.best])} in {f.metric}"
    return f"{f.best} is enough: {reached}{_serve(f)}"


def _simple(f: Figures) -> str:
    if not f.gain_of_best or f.gain_of_best["low"] <= 0:
        return ""
    gain = f.gain_of_best
    return (
        f"begin with {f.best}: it stands {_points(gain['gain'])} points [{_points(gain['low'])}, "
        f"{_points(gain['high'])}] above {f.dense}; what is trained must beat it, not {f.dense}"
    )


def _last_run(f: Figures) -> str:
    if not f.last_run:
        return ""
    low, high = f.last_run["low"], f.last_run["high"]
    verdict = "passed" if low > 0 else "stayed behind" if high < 0 else "did not surely pass"
    interval = f"{100 * f.last_run['gain']:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"know the last run: trained {verdict} the best arm without training by {interval}"


def _pool(f: Figures) -> str:
    deeper = {depth: share for depth, share in f.all_gold.items() if depth > f.pool}
    worth = [depth for depth, share in sorted(deeper.items()) if share - f.ceiling > BETTER_POOL]
    if not worth:
        return ""
    raised, now = _points(deeper[worth[0]]), _points(f.ceiling)
    what = (
        f"{raised} % of the gold is among the nearest passages instead of {now} %"
        if f.by_share
        else f"all gold is among the nearest passages for {raised} % of the questions instead of {now} %"
    )
    return f"raise retriever.pool from {f.pool} to {worth[0]}: {what}"


def _signal(f: Figures) -> str:
    if f.disagreeing >= SIGNAL or not f.rolled_out:
        return ""
    found = f"only {_points(f.disagreeing)} % of the questions have rollouts that disagree"
    if f.all_right > 0.5:
        return f"add hard questions: {found}, and {_points(f.all_right)} % are always right"
    if f.warm_start:
        return f"see what train.warm_start alone reaches (arm warm_start): before it {found}"
    return (
        f"raise retriever.temperature or filter.group_size, add easier questions, or set train.warm_start: {found}, "
        f"and {_points(1 - f.disagreeing - f.all_right)} % are never right or always alike"
    )


def _reader(f: Figures) -> str:
    if not f.reader:
        return ""
    gain, low, high = (_points(f.reader[name]) for name in ("gain", "low", "high"))
    reads = (
        f"the reader's answer F1 is {_points(f.reader['gold'])} with the gold passages and "
        f"{_points(f.reader['nothing'])} without any, {gain} [{low}, {high}] apart; it answers "
        f"{_points(f.reader['from_memory'])} % of the questions from memory and {_points(f.reader['with_gold'])} % only "
        "with the gold"
    )
    if f.reader["high"] < READS:
        return (
            f"take a better reader, or reward recall of gold passages: {reads}, so answers hardly tell what was found"
        )
    return f"answers tell what was found: {reads}"


def _history(f: Figures) -> str:
    if f.ambiguous_share < AMBIGUOUS:
        return ""
    share = _points(f.ambiguous_share)
    return f"let the retriever read the history: {share} % of the later queries mean nothing without it"


def _test_questions(f: Figures) -> str:
    if f.detectable <= SMALL:
        return ""
    return (
        f"add test questions: those of now show a gain of {_points(f.detectable)} points or more; 5 points need about "
        f"{f.needed:,}"
    )


def _train(f: Figures) -> str:
    if f.rule_leads or (f.last_run and f.last_run["gain"] <= 0):
        return "" if f.means[f.best] >= ENOUGH else f"do not train {f.method} as it stands{_serve(f)}"
    if f.means[f.best] >= ENOUGH or (f.all_gold and f.ceiling - f.found < SMALL):
        return ""
    if f.disagreeing < SIGNAL and (not f.warm_start or f.all_right > 0.5):
        return ""
    signal = f"{_points(f.disagreeing)} % of the questions have rollouts to learn from"
    start = signal if f.disagreeing >= SIGNAL else "after the warm start"
    room = _points(f.ceiling - f.found)
    more = (
        f"; the pool holds {room} % of the gold beyond what the best untrained arm finds"
        if f.by_share
        else f"; for {room} % of all questions the pool holds all gold that no untrained arm finds"
    )
    more = more if f.all_gold else ""
    return f"train: {f.method}; {start}{more}"


RULES: tuple[Callable[[Figures], str], ...] = (
    _enough,
    _simple,
    _last_run,
    _pool,
    _signal,
    _reader,
    _history,
    _test_questions,
    _train,
)


def advice(figures: Figures) -> list[str]:
    """Return what to do, the most important first; never empty."""
    sentences = [sentence for rule in RULES if (sentence := rule(figures))]
    return sentences or [f"training can add little: {figures.best} finds nearly all that its pool holds"]


def as_json(figures: Figures) -> dict[str, Any]:
    """Return the figures by name, with the ceiling."""
    return {**vars(figures), "ceiling": figures.ceiling}
