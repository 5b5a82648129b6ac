"""The arm best_of: a language model samples several episodes of a question, and a model that sees no gold chooses."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from harr.builders.generators import build_reader
from harr.characters import normalise
from harr.params.faults import read_section
from harr.params.fields import Section
from harr.params.generator import LocalParams, ServedParams, Untaught
from harr.rag.pipelines.replies import messages, passages_text
from harr.rag.scoring.judge import grade_of
from harr.types import Episode, Generate, Generator
from harr_selectors.samples import Group, play_samples
from tasks.common import report_usage
from tasks.paths import PLACES
from tasks.samples import Player, Playing

PROMPT = Path(__file__).with_name("choose.txt").read_text(encoding="utf-8")


class SelectorParams(Section):
    """Settings of this package's arms."""

    selector: Annotated[ServedParams | LocalParams, Field(discriminator="kind"), Untaught]
    """Model that grades, from question and passages, without gold."""


def best_of(selector: Mapping[str, Any]) -> Player:
    """Return the player that takes the answer with the selector's best grade."""
    section = read_selector(selector)

    def play(playing: Playing) -> tuple[list[Episode], list[Group]]:
        groups = play_samples(playing.questions, playing.game, playing.samplers, batch_size=playing.batch_size)
        judge = open_selector(section, playing)
        episodes = choose_best(groups, judge)
        report_usage(playing.log, selector=judge)
        return episodes, groups

    return play


def read_selector(selector: Mapping[str, Any]) -> SelectorParams:
    """Return the settings of an arm.

    Raises:
        ParamsError: they are not those of a server or a local model.
    """
    return read_section(SelectorParams, {"selector": selector}, "evaluate.arms: settings of harr_selectors")


def open_selector(section: SelectorParams, playing: Playing) -> Generator:
    """Return the model that grades."""
    found = build_reader(section.selector, playing.params.seed, PLACES, "evaluate.arms selector")
    assert found
    return found


def choose_best(groups: Sequence[Group], judge: Generator) -> list[Episode]:
    """Return the episode of each group whose answer ``judge`` grades best; of equals, the more frequent answer.

    The judge reads the question, what the episode found, and the answer. An unreadable grade is 0.
    """
    asked = {_key(episode): _request(episode) for group in groups for episode in group if episode.answer}
    replies = judge.complete(list(asked.values())) if asked else []
    grades = {key: grade_of(reply) or 0.0 for key, reply in zip(asked, replies, strict=True)}
    chosen = []
    for group in groups:
        counts = Counter(normalise(episode.answer or "") for episode in group if episode.answer)
        rank = [(grades.get(_key(one), -1.0), counts[normalise(one.answer or "")]) for one in group]
        chosen.append(group[rank.index(max(rank))])
    return chosen


def _key(episode: Episode) -> tuple[str, ...]:
    return (episode.question.id, episode.answer or "", *(passage.id for passage in episode.retrieved))


def _request(episode: Episode) -> Generate:
    """Return the request to the judge. The answer is one JSON string, so it cannot add lines of its own."""
    answer = json.dumps(episode.answer, ensure_ascii=False)
    passages, _ = passages_text(episode.retrieved)
    return messages(PROMPT, question=" ".join(episode.question.text.split()), passages=passages, answer=answer)
