"""Demonstrations from what was played: the best episodes of a teacher, or of the model itself (rejection sampling).

An episode becomes the rows that :mod:`harr.generator.demonstrations` reads: of raw text its pieces, of chat messages a
conversation. What the model is to write itself is marked, with the stop string that ended it, which servers cut off.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harr.generator.demonstrations import Piece
from harr.types import Episode, Turn

BEGUN = "<think>"
SHORTEST = 4
"""Number of characters from which on an answer is looked for in what was written: "yes" stands anywhere."""
_WORD = re.compile(r"\w+")
Row = dict[str, Any]


@dataclass
class Choice:
    """What was kept, best first within a question, and for what reasons the others were dropped."""

    kept: list[tuple[Episode, float]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def choose(
    episodes: Sequence[Episode],
    rewards: Sequence[float | None],
    *,
    at_least: float,
    each: int,
    hidden: frozenset[tuple[str, ...]],
) -> Choice:
    """Return the episodes that are worth learning from: at most ``each`` of a question, the best.

    Dropped is what earned less than ``at_least``; what is not well-formed or was cut off; what did not search; what
    leaks, because its question is one of the ``hidden`` (:attr:`Question.identity`) or because it says the answer
    before anything showed it; and what was written word for word before.
    """
    choice, seen, taken = Choice(), set[tuple[str, ...]](), Counter[str]()
    order = sorted(range(len(episodes)), key=lambda n: (-(rewards[n] or 0.0), _length(episodes[n]), n))
    for number in order:
        episode, reward = episodes[number], rewards[number]
        own = (episode.question.id, *(str(turn.completion) for turn in episode.turns))
        if reason := _fault(episode, reward, at_least, hidden):
            choice.dropped[reason] += 1
        elif own in seen:
            choice.dropped["duplicates"] += 1
        elif taken[episode.question.id] == each:
            choice.dropped["others of their question are better"] += 1
        else:
            taken[episode.question.id] += 1
            choice.kept.append((episode, reward or 0.0))
        seen.add(own)
    return choice


def _fault(episode: Episode, reward: float | None, at_least: float, hidden: frozenset[tuple[str, ...]]) -> str:
    """Return why nothing is to be learnt from an episode; "" where it may be."""
    outcome = episode.outcome
    if episode.question.identity in hidden:
        return "leaks: a question of validation or test"
    if reward is None or reward < at_least:
        return "reward"
    cut = any(not turn.request.stopped(turn.completion) for turn in episode.turns if not turn.request.max_tokens)
    if outcome.malformed or outcome.faults or (cut and not episode.turns[-1].request.messages):
        return "form"
    if not episode.steps:
        return "no search"
    return "leaks: the answer before it was found" if recited(episode) else ""


def recited(episode: Episode) -> bool:
    """Return whether a turn before the last says the answer, which nothing that it had read did.

    >>> from harr.types import Generate, Question
    >>> asked = Question("q", "Where was Ada Brown born?", answers=("Ashford",))
    >>> turns = [Turn(Generate(prompt=text), said) for text, said in (("Q", "Ashford?"), ("Q Ashford", "Ashford"))]
    >>> recited(Episode(asked, turns=tuple(turns))), recited(Episode(asked, turns=tuple(turns[1:])))
    (True, False)
    """
    answers = [_words(answer) for answer in episode.question.answers if len(answer) >= SHORTEST]
    for turn in episode.turns[:-1]:
        shown = [turn.request.prompt, *(message["content"] for message in turn.request.messages)]
        read = _words(" ".join([*shown, episode.question.text]))
        said = _words(str(turn.completion))
        if any(answer in said and answer not in read for answer in answers):
            return True
    return False


def rows_of(episode: Episode, opening: str = "") -> list[Row]:
    """Return an episode as demonstrations: a row for every text that grows, of most pipelines one.

    ``opening``: the text that the learner is asked first, where the teacher was asked otherwise.
    """
    rows: list[list[Turn]] = []
    for turn in episode.turns:
        if rows and _goes_on(rows[-1][-1], turn):
            rows[-1].append(turn)
        else:
            rows.append([turn])
    return [
        {"messages": _conversation(turns)} if turns[0].request.messages else {"pieces": _pieces(turns, opening)}
        for turns in rows
    ]


def _goes_on(before: Turn, turn: Turn) -> bool:
    """Return whether a turn goes on from the text of the one before it."""
    if before.request.messages:
        return turn.request.messages[: len(before.request.messages)] == before.request.messages
    return turn.request.prompt.startswith(before.request.prompt + before.request.cut(before.completion))


def _conversation(turns: Sequence[Turn]) -> list[dict[str, str]]:
    """Return messages; earlier turns of the assistant stand in the last request as the pipeline has closed them."""
    last = turns[-1]
    return [*(dict(one) for one in last.request.messages), {"role": "assistant", "content": written(last)}]


def _pieces(turns: Sequence[Turn], opening: str) -> list[Piece]:
    """Return the text in pieces, with what ended a turn in that turn."""
    pieces: list[Piece] = []
    shown = ""
    for turn, after in zip(turns, [*turns[1:], None], strict=True):
        text = turn.request.cut(turn.completion)
        own = _ended(turn, text, after.request.prompt) if after else written(turn)
        pieces += [(turn.request.prompt[len(shown) :], False), (own, True)]
        shown = turn.request.prompt + own
    if opening:  # both begin the thoughts, or neither does
        asked, own = pieces[0][0], pieces[1][0]
        begun, begins = (text.rstrip().endswith(BEGUN) for text in (asked, opening))
        own = BEGUN + own if begun and not begins else own
        pieces[:2] = [(opening, False), (own.lstrip().removeprefix(BEGUN) if begins and not begun else own, True)]
    return pieces


def _ended(turn: Turn, text: str, after: str) -> str:
    """Return a text with the stop string that ended it, which stands in the prompt that comes after."""
    request = turn.request
    rest = after[len(request.prompt) + len(text) :] if request.stopped(turn.completion) else ""
    return text + next((word for word in request.stop if rest.startswith(word)), "")


def written(turn: Turn) -> str:
    """Return what the model wrote in a turn, with the stop string that ended it, if one did.

    >>> from harr.types import Generate
    >>> asked = Generate(prompt="q", stop=("</search>", "</answer>"))
    >>> written(Turn(asked, "<think>or <answer>?</think> <search>Ada")), written(Turn(asked, "Bath."))
    ('<think>or <answer>?</think> <search>Ada</search>', 'Bath.')
    >>> written(Turn(Generate(prompt="Query:", stop=("\\n",)), " Ada"))
    ' Ada\\n'
    """
    request, text = turn.request, turn.request.cut(turn.completion)
    if not request.stopped(turn.completion):
        return text
    begins = {word: text.rfind(word.replace("</", "<", 1)) if word.startswith("</") else 0 for word in request.stop}
    ended = max(begins, key=lambda word: begins[word], default="")
    return text + ended if begins.get(ended, -1) >= 0 else text


def _words(text: str) -> str:
    return " ".join(["", *_WORD.findall(text.casefold()), ""])


def _length(episode: Episode) -> int:
    return sum(len(turn.completion) for turn in episode.turns)
