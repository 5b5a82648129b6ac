"""Arms that play a question several times by chance, and what that costs (:mod:`harr.evaluate.samples`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harr.params import Params
from harr.types import Episode, Log, Question
from tasks.common import report_usage
from tasks.paths import PLACES

if TYPE_CHECKING:
    from harr.evaluate.play import ArmRun, Game

Row = dict[str, Any]
Groups = list[tuple[Episode, ...]]


def play_samples_of(params: Params, run: "ArmRun", game: "Game", questions: Sequence[Question]) -> Groups:
    """Return ``evaluate.samples`` sampled episodes of every question, where an arm or ``pass_at`` asks for them.

    They are remembered, so that arms of one model share them.
    """
    from harr.builders.players import open_samplers
    from harr.builders.writers import untaught_folder
    from harr.evaluate.samples import play_samples

    section = params.evaluate
    if run.arm.choose == "each_search" or not (params.writer_learns and (run.arm.choose or section.pass_at)):
        return []
    folder = untaught_folder(params.generator, PLACES) if run.arm.untaught else run.folder
    writers = open_samplers(params, PLACES, folder, section.samples)
    return play_samples(questions, game, writers, batch_size=section.batch_size)


def chosen(
    params: Params, run: "ArmRun", game: "Game", questions: Sequence[Question], groups: Groups, log: Log
) -> tuple[list[Episode], Groups]:
    """Return the episode that the arm chooses of every question, and all that was played for it."""
    from harr.builders.players import open_samplers
    from harr.builders.writers import build_reader
    from harr.evaluate.beam import play_beam
    from harr.evaluate.samples import best_of, majority

    section, choose = params.evaluate, run.arm.choose
    if not choose:
        episodes = game.play(questions, batch_size=section.batch_size)
        return episodes, [(episode,) for episode in episodes]
    if choose == "votes":
        return [majority(group) for group in groups], groups
    judge = build_reader(section.selector, params.seed, PLACES, "evaluate.selector")
    assert judge
    played = groups
    if choose == "each_search":
        writers = open_samplers(params, PLACES, run.folder, section.samples)
        groups, played = play_beam(questions, game, writers, judge, batch_size=section.batch_size)
    episodes = best_of(groups, judge)
    report_usage(log, selector=judge)
    return episodes, played


def with_samples(params: Params, rows: list[Row], groups: Groups, played: Groups) -> list[Row]:
    """Return the rows with pass@k of the samples and, where any arm samples, the tokens that the model wrote.

    ``played``: all that was played for the chosen episodes.
    """
    from harr.builders.writers import written_by
    from harr.evaluate.play import rates
    from harr.evaluate.samples import written_tokens

    section = params.evaluate
    if groups and section.pass_at:
        found = rates(groups, section.pass_at)
        rows = [row | found[row["id"]] for row in rows]
    if any(arm.choose for arm in section.arm_table.values()):
        tokens = written_by(params.generator, PLACES).tokens
        rows = [
            row | {"written_tokens": written_tokens(group, tokens)} for row, group in zip(rows, played, strict=True)
        ]
    return rows
