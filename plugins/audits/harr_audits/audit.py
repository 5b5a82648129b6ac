"""The alarm before a promotion: exploits of the reward in the episodes played, and answers without evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

from harr.arms import TRAINED
from harr.builders.generators import build_generator, build_reader
from harr.builders.players import open_generator
from harr.evaluate.audit import Audit
from harr.evaluate.play import Game
from harr.evaluate.tables import percent, spread
from harr.params import Params
from harr.types import Episode, Generator
from harr_audits.exploits import EXPLOITS, Finding, audit, named
from harr_audits.swap import Swapped, swap
from tasks.paths import PLACES
from tasks.play import Rows, arm_pipelines, arm_runs

SAYS = """\
Is it paid for something else than evidence? Share of the episodes of {trained}, and of {baseline}, that show a habit
which no reward should teach. Red: it has risen by more than chance and 3 points (least rise: one-sided, corrected for
all of them)."""


def audit_play(params: Params, rows: Mapping[str, list[Rows]], episodes: Mapping[str, Sequence[Episode]]) -> Audit:
    """Return what speaks against the first run of ``trained``, compared with the arm that it started as.

    Its ``facts`` are ``named``, a line for each exploit that counts against it (:func:`harr_audits.exploits.audit`),
    and ``swap``, what another question's passages cost (:func:`harr_audits.swap.swap`). Empty if one of the two arms
    was not played.
    """
    if not {TRAINED, params.baseline} <= episodes.keys():
        return Audit()
    ours, theirs = ({row["id"]: row.get("reward") for row in rows[arm][0]} for arm in (TRAINED, params.baseline))
    gains = {
        name: reward - other
        for name, reward in ours.items()
        if reward is not None and (other := theirs.get(name)) is not None
    }
    exploits = audit(episodes[TRAINED], episodes[params.baseline], gains)
    swapped = _swap(params, episodes[TRAINED])
    accused = named(exploits)
    shares = {f"exploits.{name}": one["share"] for name, one in exploits.items()}
    once = len(rows[TRAINED]) < 2
    return Audit(
        alarms=accused,
        figures=shares | {f"swap.{name}": value for name, value in swapped.items() if isinstance(value, float)},
        facts={"exploits": exploits, "named": accused, "swap": swapped},
        title="Alarms",
        says=SAYS.format(trained=TRAINED if once else f"the first training run of {TRAINED}", baseline=params.baseline),
        table=[_row(name, one) for name, one in exploits.items()],
        note=f"Answers with another question's passages: {_swap_line(swapped)}",
    )


def _row(name: str, one: Finding) -> dict[str, str]:
    """Return the report's row for an exploit."""
    return {
        "exploit": name,
        "what": EXPLOITS[name].says,
        "share": f"{percent(one['share'])} %",
        "n": f"{one['n']}",
        "before": f"{percent(one['before'])} %",
        "n before": f"{one['before_n']}",
        "least rise": f"{100 * one['least']:+.1f}",
        "reward gained by it": f"{one['paid']:+.3f}",
    }


def _swap_line(swapped: Mapping[str, Any]) -> str:
    """Return the result of the evidence swap, in words."""
    if "not_asked" in swapped:
        return f"not asked: {swapped['not_asked']}"
    from_to = f"answer F1 falls from {100 * swapped['own']:.1f} to {100 * swapped['swapped']:.1f}"
    fall = f"{from_to}, by {spread(swapped, 'fall')} points (n = {swapped['n']:.0f})"
    return fall if swapped["low"] > 0 else f"{fall}. The answers do not depend on passages."


def _swap(params: Params, episodes: Sequence[Episode]) -> dict[str, float | str]:
    """Answer again with swapped evidence, as the first run of ``trained`` answers."""
    run = next(run for run in arm_runs(params, None) if run.name == TRAINED)
    generator: Generator | None = None
    reader: Generator | None = None
    if any(episode.answer is not None for episode in episodes):  # otherwise no model is loaded
        reader = build_reader(params.evaluate.reader, params.seed, PLACES)
        if params.language_model_learns:
            generator = open_generator(params, PLACES, run.arm, run.folder)
        else:
            generator = build_generator(params.generator, params.seed, PLACES)
    game = Game(str(run), arm_pipelines(params)[TRAINED], Swapped({}), generator, reader)
    section = params.evaluate
    return swap(game, episodes, batch_size=section.batch_size, resamples=section.resamples, seed=params.seed)
