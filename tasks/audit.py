"""The alarm before a promotion: exploits of the reward in what was played, and answers without their evidence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harr.arms import FULL
from harr.params import Params
from harr.types import Episode, Generator, Log
from tasks.paths import PLACES
from tasks.play import Rows, arm_pipelines, arm_runs


def audit_play(
    params: Params,
    rows: Mapping[str, list[Rows]],
    episodes: Mapping[str, Sequence[Episode]],
    log: Log,
    *,
    model: Path | None,
) -> dict[str, Any]:
    """Return what is held against the first run of ``full``, beside the arm that it began as.

    Returns:
        ``exploits``: figures by name (:func:`harr.evaluate.exploits.audit`); ``named``: a line for each that is held
        against it; ``swap``: what another question's passages cost (:func:`harr.evaluate.swap.swap`). Empty where one
        of the two arms was not played.
    """
    from harr.evaluate.exploits import audit, named

    if not {FULL, params.baseline} <= episodes.keys():
        return {}
    ours, theirs = ({row["id"]: row.get("reward") for row in rows[arm][0]} for arm in (FULL, params.baseline))
    gains = {
        name: reward - other
        for name, reward in ours.items()
        if reward is not None and (other := theirs.get(name)) is not None
    }
    found = audit(episodes[FULL], episodes[params.baseline], gains)
    swapped = _swap(params, episodes[FULL], log, model)
    for line in (accused := named(found)).values():
        print(f"alarm: {line}")
    log(0, {f"exploits.{name}": one["share"] for name, one in found.items()})
    log(0, {f"swap.{name}": value for name, value in swapped.items() if isinstance(value, float)})
    return {"exploits": found, "named": accused, "swap": swapped}


def _swap(params: Params, episodes: Sequence[Episode], log: Log, model: Path | None) -> dict[str, float | str]:
    from harr.builders.players import open_writer
    from harr.builders.writers import build_generator, build_reader
    from harr.evaluate.play import Game
    from harr.evaluate.swap import Swapped, swap

    run = next(run for run in arm_runs(params, model) if run.name == FULL)
    writer: Generator | None = None
    reader: Generator | None = None
    if any(episode.answer is not None for episode in episodes):  # else nobody is loaded
        reader = build_reader(params.evaluate.reader, params.seed, PLACES)
        if params.writer_learns:
            writer = open_writer(params, PLACES, run.arm, run.folder)
        else:
            writer = build_generator(params.generator, params.seed, PLACES)
    game = Game(str(run), arm_pipelines(params)[FULL], Swapped({}), writer, reader)
    section = params.evaluate
    return swap(game, episodes, batch_size=section.batch_size, resamples=section.resamples, seed=params.seed)
