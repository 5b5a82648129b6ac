"""Arms that play a question several times by chance, and what that costs (:mod:`harr.evaluate.samples`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harr.arms import Arm
from harr.errors import ParamsError
from harr.params import Params
from harr.params.functions import function_of
from harr.types import Episode, Generator, Log, Question
from tasks.paths import PLACES

if TYPE_CHECKING:
    from harr.evaluate.play import ArmRun, Game

Row = dict[str, Any]
Groups = list[tuple[Episode, ...]]


@dataclass(frozen=True, slots=True)
class Playing:
    """What the player of an arm is given."""

    questions: Sequence[Question]
    game: "Game"
    """Pipeline, retriever and the model as it writes its most likely tokens: ``game.play(questions, batch_size=8)``."""
    samplers: Sequence[Generator]
    """The model as it samples, once for each of ``evaluate.samples``."""
    batch_size: int
    params: Params
    log: Log


Player = Callable[[Playing], tuple[list[Episode], Groups]]
"""It returns the episode that it chooses of every question, and all that was played for it."""


def player_of(arm: Arm) -> Player:
    """Return what plays an arm of another package.

    Raises:
        ParamsError: there is no such function, or it takes other settings, or returns something else.
    """
    shape = "takes the settings of the arm and returns a player (tasks/samples.py)"
    make = function_of(arm.player, key="evaluate.arms", shape=shape, takes=0, settings=arm.settings)
    player: Player = make(**arm.settings)
    if not callable(player):
        raise ParamsError(f"evaluate.arms: {arm.player} returned {type(player).__name__}; give a function that {shape}")
    return player


def play_samples_of(params: Params, run: "ArmRun", game: "Game", questions: Sequence[Question]) -> Groups:
    """Return ``evaluate.samples`` sampled episodes of every question, where an arm or ``pass_at`` asks for them.

    They are remembered, so that arms of one model share them.
    """
    from harr.builders.generators import base_folder
    from harr.builders.players import open_samplers
    from harr.evaluate.samples import play_samples

    section = params.evaluate
    if run.arm.player or not (params.language_model_learns and (run.arm.votes or section.pass_at)):
        return []
    folder = base_folder(params.generator, PLACES) if run.arm.untaught else run.folder
    samplers = open_samplers(params, PLACES, folder, section.samples)
    return play_samples(questions, game, samplers, batch_size=section.batch_size)


def choose_episodes(
    params: Params, run: "ArmRun", game: "Game", questions: Sequence[Question], groups: Groups, log: Log
) -> tuple[list[Episode], Groups]:
    """Return the episode that the arm chooses of every question, and all that was played for it."""
    from harr.builders.players import open_samplers
    from harr.evaluate.samples import majority

    section = params.evaluate
    if run.arm.player:
        samplers = open_samplers(params, PLACES, run.folder, section.samples)
        return player_of(run.arm)(Playing(questions, game, samplers, section.batch_size, params, log))
    if run.arm.votes:
        return [majority(group) for group in groups], groups
    episodes = game.play(questions, batch_size=section.batch_size)
    return episodes, [(episode,) for episode in episodes]


def with_samples(params: Params, rows: list[Row], groups: Groups, played: Groups) -> list[Row]:
    """Return the rows with pass@k of the samples and, where any arm samples, the tokens that the model wrote.

    ``played``: all that was played for the chosen episodes.
    """
    from harr.builders.generators import language_model_facts
    from harr.evaluate.play import rates
    from harr.evaluate.samples import count_tokens

    section = params.evaluate
    if groups and section.pass_at:
        pass_rates = rates(groups, section.pass_at)
        rows = [row | pass_rates[row["id"]] for row in rows]
    if any(arm.votes or arm.player for arm in section.arm_table.values()):
        tokens = language_model_facts(params.generator, PLACES).tokens
        rows = [row | {"written_tokens": count_tokens(group, tokens)} for row, group in zip(rows, played, strict=True)]
    return rows
