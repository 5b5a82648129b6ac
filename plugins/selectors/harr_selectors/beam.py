"""A beam over searches: the episodes of a question are compared after every search, and the best ones continue.

N episodes are sampled. Whenever all of them have searched or ended, a model grades what each has found; the best
quarter of those not ended replaces the others (arXiv 2408.03314, section 5.1: of N beams N / M are kept, with M = 4).
The answer is chosen among the N that end (:func:`harr_selectors.best_of.choose_best`). Nobody sees gold.
"""

from collections.abc import Generator as PyGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harr.evaluate.play import Game
from harr.rag.pipelines.replies import messages, passages_text
from harr.rag.scoring.judge import grade_of
from harr.types import Episode, Generate, Generator, Outcome, Pipeline, Question, Request
from harr_selectors.best_of import choose_best, open_selector, read_selector
from harr_selectors.samples import Group
from tasks.common import report_usage
from tasks.samples import Player, Playing

PROMPT = Path(__file__).with_name("promising.txt").read_text(encoding="utf-8")
M = 4
"""Number of episodes of which one continues after a search."""
PAUSED = Outcome()
"""The outcome of an episode that has searched but not ended."""


def beam(selector: Mapping[str, Any]) -> Player:
    """Return the player of the beam, in which the selector grades after every search, and grades the answers."""
    section = read_selector(selector)

    def play(playing: Playing) -> tuple[list[Episode], list[Group]]:
        judge = open_selector(section, playing)
        size = playing.batch_size
        groups, played = play_beam(playing.questions, playing.game, playing.samplers, judge, batch_size=size)
        episodes = choose_best(groups, judge)
        report_usage(playing.log, selector=judge)
        return episodes, played

    return play


def play_beam(
    questions: Sequence[Question], game: Game, samplers: Sequence[Generator], judge: Generator, *, batch_size: int
) -> tuple[list[Group], list[Group]]:
    """Return the ended episodes of every question, one per sampling generator in ``samplers``; and everything played
    for them, every part once, including parts that were given up."""
    going = {question.id: [Episode(question) for _ in samplers] for question in questions}
    ended: dict[str, list[Episode]] = {question.id: [] for question in questions}
    parts: dict[str, list[Episode]] = {question.id: [] for question in questions}
    while any(going.values()):
        paused: dict[str, list[Episode]] = {name: [] for name in going}
        for number, sampler in enumerate(samplers):
            begun = {name: episodes[number] for name, episodes in going.items() if number < len(episodes)}
            desc = f"{game.desc}: next search, {number + 1}/{len(samplers)}"
            stretch = replace(game, pipeline=_up_to_search(game.pipeline, begun), generator=sampler, desc=desc)
            asked = [episode.question for episode in begun.values()]
            for part, (name, before) in zip(stretch.play(asked, batch_size=batch_size), begun.items(), strict=True):
                whole = replace(part, steps=before.steps + part.steps, turns=before.turns + part.turns)
                parts[name].append(part)
                (paused if part.outcome is PAUSED else ended)[name].append(whole)
        best = _best(paused, judge)
        going = {name: _filled(best[name], len(samplers) - len(ended[name])) for name in going}
    return [tuple(found) for found in ended.values()], [tuple(played) for played in parts.values()]


def _up_to_search(pipeline: Pipeline, begun: Mapping[str, Episode]) -> Pipeline:
    """Return a pipeline that continues what is ``begun`` of a question, by id, and pauses after its next search."""

    def play(question: Question) -> PyGenerator[Request, Any, Outcome]:
        moves, before = pipeline(question), begun[question.id]
        retrievals = iter([step.retrieval for step in before.steps])
        completions = iter([turn.completion for turn in before.turns])
        searched, left = False, len(before.steps) + len(before.turns)
        answer: Any = None
        while True:
            try:
                request = moves.send(answer)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            if searched and isinstance(request, Generate):
                return PAUSED
            if not left:
                answer = yield request
                searched = searched or not isinstance(request, Generate)
            elif isinstance(request, tuple):
                answer = [next(retrievals) for _ in request]
                left -= len(request)
            else:
                answer, left = next(completions if isinstance(request, Generate) else retrievals), left - 1

    return play


def _best(groups: Mapping[str, Sequence[Episode]], judge: Generator) -> dict[str, list[Episode]]:
    """Return the best quarter of each group, at least one if any, by what was found; of equals the first.

    An unreadable grade is 0.
    """
    asked = [_request(episode) for group in groups.values() for episode in group]
    grades = iter([-(grade_of(reply) or 0.0) for reply in (judge.complete(asked) if asked else [])])
    found = {}
    for name, group in groups.items():
        own = [next(grades) for _ in group]
        order = sorted(range(len(group)), key=own.__getitem__)
        found[name] = [group[number] for number in order[: max(1, len(group) // M)]]
    return found


def _filled(episodes: Sequence[Episode], count: int) -> list[Episode]:
    """Return ``count`` episodes, repeating all equally often; none if there are none.

    >>> [episode.question.id for episode in _filled([Episode(Question(name, "")) for name in "ab"], 3)]
    ['a', 'b', 'a']
    """
    return [episodes[number % len(episodes)] for number in range(count)] if episodes else []


def _request(episode: Episode) -> Generate:
    passages, _ = passages_text(episode.retrieved)
    return messages(PROMPT, question=" ".join(episode.question.text.split()), passages=passages)
