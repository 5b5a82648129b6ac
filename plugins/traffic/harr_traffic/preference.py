"""What a shadow candidate would have answered, compared with what was served: `harr replay` of a log with shadows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harr.errors import CorpusError
from harr.rag.policies.dense import unique
from harr_traffic.estimate import (
    LEAST_GROUPS,
    Estimate,
    apart_line,
    check_kept,
    check_support,
    effective,
    estimates,
    interval,
)
from harr_traffic.log import Feedback, LoggedSearch
from harr_traffic.shadows import Shadowed

Pair = tuple[LoggedSearch, Shadowed]
Span = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over ``rows`` searches with its 95 % interval; no ``span`` where there are too few questions."""

    rows: int
    span: Span | None


@dataclass(frozen=True, slots=True)
class Compared:
    """What a log says about a candidate and what was served.

    Args:
        version: version of the candidate. served: versions that answered.
        searches: number that it ranked. asked: number answered in that time.
        first: share whose first passage differs. others: share of the served passages that the candidate leaves out.
            Both are over searches answered with the best, not drawn.
        same, differs: mean score of what was served, where the first passage is the same, and where it is not.
        preferred: share of the searches with a click in which the candidate puts the clicked passage higher, less the
            share in which it puts it lower or leaves it out. higher, lower: numbers of both.
        explored: searches that were drawn and have an outcome. effective: how many they count as. apart: how many more
            have kept first ranks that the candidate would fill otherwise.
        found: estimates of what the candidate would have earned, by name. refused: why there are none.
    """

    version: str
    served: tuple[str, ...]
    searches: int
    asked: int
    first: Mean
    others: Mean
    same: Mean
    differs: Mean
    higher: int
    lower: int
    preferred: Mean
    explored: int
    effective: float
    apart: int
    found: dict[str, Estimate]
    refused: str

    def figures(self) -> dict[str, Any]:
        """Return plain values for a json file."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the table, in percent."""
        lines = [
            f"candidate {self.version} against {', '.join(self.served)}: ranked {self.searches:,} of {self.asked:,} "
            "searches",
            _line("first passage differs", self.first),
            _line("served, and not found", self.others),
            _line("score, first the same", self.same),
            _line("score, first differs", self.differs),
            _line("clicked: preferred", self.preferred, signed=True)
            + f", higher {self.higher:,}, lower or not found {self.lower:,} (only what was served can be clicked)",
        ]
        for name, one in self.found.items():
            gain = f"{100 * one.gain:+.1f} [{100 * one.gain_low:+.1f}, {100 * one.gain_high:+.1f}]"
            span = f"{100 * one.mean:5.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"
            lines.append(f"{f'earned ({name})':<23}{span:<22} gain {gain}")
        counted = f"{self.explored:,} explored searches with an outcome"
        lines.append(self.refused or f"{counted}, which count as {self.effective:,.0f}")
        if self.apart and not self.refused:
            lines.append(apart_line(self.apart))
        return lines


def compare(
    searches: Sequence[LoggedSearch], outcomes: dict[str, Feedback], shadows: Sequence[Shadowed]
) -> list[Compared]:
    """Return what a log says about every candidate that ranked its searches, in order of appearance.

    Raises:
        CorpusError: no candidate did.
    """
    search_of = {one.id: one for one in searches}
    of: dict[str, list[Pair]] = {}
    for one in shadows:
        if one.id in search_of:  # retention may have removed the search
            of.setdefault(one.version, []).append((search_of[one.id], one))
    if not of:
        raise CorpusError(
            "no search of the log was ranked by a candidate; serve with --observer harr_traffic.shadow:Shadow=MODEL, or name one by --model"
        )
    return [_compared(version, pairs, searches, outcomes) for version, pairs in of.items()]


def _compared(
    version: str, pairs: Sequence[Pair], searches: Sequence[LoggedSearch], outcomes: dict[str, Feedback]
) -> Compared:
    served = {search.version for search, _ in pairs}
    first_at, last_at = (edge(search.at for search, _ in pairs) for edge in (min, max))
    best = [pair for pair in pairs if not pair[0].pool]
    drawn = [pair for pair in pairs if pair[0].pool and pair[1].logprob is not None and pair[0].id in outcomes]
    scored = [pair for pair in best if pair[0].id in outcomes]
    agrees = {search.id: search.chosen[:1] == shadow.chosen[:1] for search, shadow in best}
    clicks = [(pair, outcomes[pair[0].id].clicked) for pair in scored]
    clicked = [(pair, _higher(*pair, names)) for pair, names in clicks if set(names) & set(pair[0].chosen)]
    same = [search.chosen[: search.kept] == shadow.chosen[: search.kept] for search, shadow in drawn]
    weight, found, refused = _earned(drawn, same, outcomes)
    return Compared(
        version,
        tuple(sorted(served)),
        len(pairs),
        sum(one.version in served and first_at <= one.at <= last_at for one in searches),
        first=_mean([(pair, not agrees[pair[0].id]) for pair in best]),
        others=_mean([(pair, 1.0 - len({*pair[0].chosen} & {*pair[1].chosen}) / len(pair[0].chosen)) for pair in best]),
        same=_mean([(pair, outcomes[pair[0].id].score) for pair in scored if agrees[pair[0].id]]),
        differs=_mean([(pair, outcomes[pair[0].id].score) for pair in scored if not agrees[pair[0].id]]),
        higher=sum(side > 0 for _, side in clicked),
        lower=sum(side < 0 for _, side in clicked),
        preferred=_mean(clicked),
        explored=sum(same),
        effective=weight,
        apart=len(same) - sum(same),
        found=found,
        refused=refused,
    )


def _higher(search: LoggedSearch, shadow: Shadowed, clicked: Sequence[str]) -> float:
    """Return 1 if the candidate puts the first clicked passage higher, 0 if the same, -1 if lower or nowhere."""

    def place(names: Sequence[str]) -> int:
        return min((names.index(one) for one in clicked if one in names), default=len(names))

    return float(np.sign(place(search.chosen) - place(shadow.chosen)))


def _earned(
    drawn: Sequence[Pair], same: Sequence[bool], outcomes: dict[str, Feedback]
) -> tuple[float, dict[str, Estimate], str]:
    """Return the effective number of rows, the estimates ``ips`` and ``snips``, and why there are none.

    Only rows whose kept first ranks are the ``same`` in both are choices of the candidate.
    """
    if not drawn:
        return 0.0, {}, "no search was both explored and has an outcome: what it would have earned is not known"
    try:
        check_kept(np.array(same))
    except CorpusError as error:
        return 0.0, {}, str(error)
    drawn = [pair for pair, own in zip(drawn, same, strict=True) if own]
    weights_B = np.exp([float(shadow.logprob or 0.0) - float(search.logprob or 0.0) for search, shadow in drawn])
    scores_B = np.array([outcomes[search.id].score for search, _ in drawn])
    groups_B = unique([search.question or search.id for search, _ in drawn])[1]
    try:
        check_support(weights_B, groups_B)
    except CorpusError as error:
        return effective(weights_B), {}, str(error)
    nothing_B1 = np.zeros((len(drawn), 1))  # no features: what dr adds is not known here
    found = estimates(weights_B, scores_B, groups_B, nothing_B1, nothing_B1)
    return effective(weights_B), {name: found[name] for name in ("ips", "snips")}, ""


def _mean(rows: Sequence[tuple[Pair, float]]) -> Mean:
    """Return a mean over searches; those of one question count as one group."""
    groups_B = unique([search.question or search.id for (search, _), _ in rows])[1]
    few = not rows or groups_B.max() + 1 < LEAST_GROUPS
    values_B = np.array([float(value) for _, value in rows])
    return Mean(len(rows), None if few else interval(values_B, groups_B))


def _line(name: str, mean_found: Mean, *, signed: bool = False) -> str:
    if mean_found.span is None:
        return f"{name:<23}too few: {mean_found.rows:,} searches, of fewer than {LEAST_GROUPS} questions"
    sign = "+" if signed else ""
    mean, low, high = (f"{100 * value:{sign}.1f}" for value in mean_found.span)
    return f"{name:<23}{mean:>5} [{low}, {high}] of {mean_found.rows:,}"
