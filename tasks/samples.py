"""Arms that another package's function plays with several samples per question, and their cost."""

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
    """Inputs of an arm's player."""

    questions: Sequence[Question]
    game: "Game"
    """Pipeline, retriever and the greedy model: ``game.play(questions, batch_size=8)``."""
    samplers: Sequence[Generator]
    """The sampling model, once for each of ``evaluate.samples``."""
    batch_size: int
    params: Params
    log: Log


Player = Callable[[Playing], tuple[list[Episode], Groups]]
"""Returns the episode that it chooses for every question, and all that were played for it."""


def player_of(arm: Arm) -> Player:
    """Return the player of an arm of another package.

    Raises:
        ParamsError: the function does not exist, takes other settings, or returns something else.
    """
    shape = "takes the settings of the arm and returns a player (tasks/samples.py)"
    make = function_of(arm.player, key="evaluate.arms", shape=shape, takes=0, settings=arm.settings)
    player: Player = make(**arm.settings)
    if not callable(player):
        raise ParamsError(f"evaluate.arms: {arm.player} returned {type(player).__name__}; give a function that {shape}")
    return player


def choose_episodes(
    params: Params, run: "ArmRun", game: "Game", questions: Sequence[Question], log: Log
) -> tuple[list[Episode], Groups]:
    """Return the episode that the arm chooses for every question, and all that were played for it."""
    from harr.builders.players import open_samplers

    section = params.evaluate
    if run.arm.player:
        samplers = open_samplers(params, PLACES, run.folder, section.samples)
        return player_of(run.arm)(Playing(questions, game, samplers, section.batch_size, params, log))
    episodes = game.play(questions, batch_size=section.batch_size)
    return episodes, [(episode,) for episode in episodes]


def with_tokens(params: Params, rows: list[Row], played: Groups) -> list[Row]:
    """Return the rows with the number of tokens that the model wrote in all ``played`` episodes, if any arm samples."""
    from harr.builders.generators import language_model_facts

    if not any(arm.player for arm in params.evaluate.arm_table.values()):
        return rows
    tokens = language_model_facts(params.generator, PLACES).tokens
    return [row | {"written_tokens": count_tokens(group, tokens)} for row, group in zip(rows, played, strict=True)]


def count_tokens(group: Sequence[Episode], tokens: Callable[[str], int]) -> float:
    """Return how many tokens the model wrote in all episodes of a question."""
    return float(sum(tokens(str(turn.completion)) for episode in group for turn in episode.turns))
