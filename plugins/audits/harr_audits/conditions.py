"""What a candidate must show besides its gain: functions for ``tracking.conditions``."""

from collections.abc import Mapping, Sequence
from typing import Any

from harr.errors import ParamsError
from harr.params.measures import of_metrics
from harr.report.promotion import Condition
from harr_audits.exploits import EXPLOITS
from tasks.paths import AUDITS
from tasks.registry.gate import Gains, read_registered

AUDIT = "harr_audits.audit:audit_play"
"""The function of ``evaluate.audits`` whose facts are read."""
RECORDED = (
    f"{AUDIT} in evaluate.audits, and both `trained` and the arm that it began as in evaluate.arms; then `dvc repro`"
)


def exploits(client: Any, candidate: Any, gains: Gains, *, allowed: Sequence[str] = ()) -> Condition:
    """Require that no exploit of the reward was named except those ``allowed``.

    Raises:
        ParamsError: an allowed name is no known exploit.
    """
    if unknown := set(allowed) - EXPLOITS.keys():
        raise ParamsError(f"allowed: no exploit is called {min(unknown)}; there are {', '.join(EXPLOITS)}")
    if not (facts := _facts(client, candidate)):
        return Condition("exploits", "none recorded", RECORDED, False)
    named = {name: line for name, line in facts["named"].items() if name not in allowed}
    passed = [f"{name} is allowed" for name in facts["named"] if name in allowed]
    needed = "none, or its name in allowed" if named else "none"
    return Condition("exploits", "; ".join(named.values()) or ", ".join(["none", *passed]), needed, not named)


def evidence(client: Any, candidate: Any, gains: Gains) -> Condition:
    """Require that answers depend on passages, if there are answers."""
    if not (facts := _facts(client, candidate)):
        return Condition("evidence", "none recorded", RECORDED, False)
    swap, needed = facts["swap"], "an answer F1 that falls with another question's passages"
    if "not_asked" in swap:
        return Condition("evidence", f"not asked: {swap['not_asked']}", needed, True)
    found = f"answer F1 {swap['own']:.3f} falls by {swap['fall']:.3f} [{swap['low']:.3f}, {swap['high']:.3f}]"
    depends = swap["low"] > 0
    return Condition("evidence", found if depends else f"answers do not depend on passages: {found}", needed, depends)


def veto(client: Any, candidate: Any, gains: Gains, *, least: Mapping[str, float]) -> Condition:
    """Require that no metric of ``least`` has a mean gain below its number there, such as ``{answer_f1: -0.01}``."""
    asked = of_metrics(dict(least))
    measured = {metric: gains.get(metric, {}).get("gain") for metric in asked}
    found = [f"{metric} {'not measured' if gain is None else f'{gain:+.3f}'}" for metric, gain in measured.items()]
    needed = [f"{metric} at least {bound:+.3f}" for metric, bound in asked.items()]
    passed = all(gain is not None and gain >= asked[metric] for metric, gain in measured.items())
    return Condition("veto", ", ".join(found), ", ".join(needed), passed)


def _facts(client: Any, candidate: Any) -> Mapping[str, Any]:
    """Return what the audit of the candidate's evaluation found; {} without an audit."""
    facts: Mapping[str, Any] = read_registered(client, candidate, AUDITS).get(AUDIT, {}).get("facts", {})
    return facts
