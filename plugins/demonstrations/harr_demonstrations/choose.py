"""Demonstrations from episodes: the best of a teacher, or of the model itself (rejection sampling).

An episode becomes rows for :mod:`harr.generator.demonstrations`: raw text becomes pieces, chat messages a conversation.
The model's turns are marked and include the stop string that ended them, which servers cut off.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harr.characters import WORD, fold
from harr.generator.demonstrations import Piece
from harr.types import Episode, Turn

BEGIN = "<think>"
SHORTEST = 4
"""Minimum length of an answer that can count as leaked: "yes" occurs anywhere."""
Row = dict[str, Any]


@dataclass
class Choice:
    """The chosen episodes, best first within a question, and counts of the reasons for dropping the others."""

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
    """Choose the episodes worth learning from: at most ``each`` per question, the best.

    Dropped are episodes that earned less than ``at_least``, are malformed or were cut off, did not search, repeat
    another word for word, or leak: their question is one of the ``hidden`` (:attr:`Question.identity`), or a turn gives
    the answer before any text showed it.
    """
    choice, seen, counts = Choice(), set[tuple[str, ...]](), Counter[str]()
    order = sorted(range(len(episodes)), key=lambda n: (-(rewards[n] or 0.0), _length(episodes[n]), n))
    for number in order:
        episode, reward = episodes[number], rewards[number]
        key = (episode.question.id, *(str(turn.completion) for turn in episode.turns))
        if reason := _find_fault(episode, reward, at_least, hidden):
            choice.dropped[reason] += 1
        elif key in seen:
            choice.dropped["duplicates"] += 1
        elif counts[episode.question.id] == each:
            choice.dropped["others of their question are better"] += 1
        else:
            counts[episode.question.id] += 1
            choice.kept.append((episode, reward or 0.0))
        seen.add(key)
    return choice


def _find_fault(episode: Episode, reward: float | None, at_least: float, hidden: frozenset[tuple[str, ...]]) -> str:
    """Return why an episode is no demonstration, "" if it is one."""
    outcome = episode.outcome
    if episode.question.identity in hidden:
        return "leaks: a question of validation or test"
    if reward is None or reward < at_least:
        return "reward"
    cut = any(not turn.request.stopped(turn.completion) for turn in episode.turns)
    if outcome.malformed or outcome.faults or (cut and not episode.turns[-1].request.messages):
        return "form"
    if not episode.steps:
        return "no search"
    return "leaks: the answer before it was found" if leaks_answer(episode) else ""


def leaks_answer(episode: Episode) -> bool:
    """Return whether a turn before the last gives the answer although its context did not.

    >>> from harr.types import Generate, Question
    >>> question = Question("q", "Where was Ada Brown born?", answers=("Ashford",))
    >>> turns = [Turn(Generate(prompt=text), reply) for text, reply in (("Q", "Ashford?"), ("Q Ashford", "Ashford"))]
    >>> leaks_answer(Episode(question, turns=tuple(turns))), leaks_answer(Episode(question, turns=tuple(turns[1:])))
    (True, False)
    """
    answers = [_words(answer) for answer in episode.question.answers if len(answer) >= SHORTEST]
    for turn in episode.turns[:-1]:
        texts = [turn.request.prompt, *(message["content"] for message in turn.request.messages)]
        context = _words(" ".join([*texts, episode.question.text]))
        reply = _words(str(turn.completion))
        if any(answer in reply and answer not in context for answer in answers):
            return True
    return False


def rows_of(episode: Episode, opening: str = "") -> list[Row]:
    """Return an episode as demonstrations: one row per growing text; most pipelines have only one.

    ``opening``: the learner's first prompt, if the teacher had another. It is that of the first row alone: later ones
    begin with what was found.
    """
    rows: list[list[Turn]] = []
    for turn in episode.turns:
        if rows and _continues(rows[-1][-1], turn):
            rows[-1].append(turn)
        else:
            rows.append([turn])
    return [
        {"messages": _conversation(turns)}
        if turns[0].request.messages
        else {"pieces": _pieces(turns, opening if turns is rows[0] else "")}
        for turns in rows
    ]


def _continues(before: Turn, turn: Turn) -> bool:
    """Return whether a turn continues the text of the one before it."""
    if before.request.messages:
        return turn.request.messages[: len(before.request.messages)] == before.request.messages
    return turn.request.prompt.startswith(before.request.prompt + before.request.cut(before.completion))


def _conversation(turns: Sequence[Turn]) -> list[dict[str, str]]:
    """Return the messages; the last request contains earlier assistant turns as the pipeline closed them."""
    last = turns[-1]
    return [*map(dict, last.request.messages), {"role": "assistant", "content": add_stop_string(last)}]


def _pieces(turns: Sequence[Turn], opening: str) -> list[Piece]:
    """Return the text in pieces; a turn includes its stop string."""
    pieces: list[Piece] = []
    context = ""
    for turn, after in zip(turns, [*turns[1:], None], strict=True):
        text = turn.request.cut(turn.completion)
        reply = _add_stop_of_prompt(turn, text, after.request.prompt) if after else add_stop_string(turn)
        pieces += [(turn.request.prompt[len(context) :], False), (reply, True)]
        context = turn.request.prompt + reply
    if opening:  # both start the thoughts, or neither does
        prompt, reply = pieces[0][0], pieces[1][0]
        in_prompt, in_opening = (text.rstrip().endswith(BEGIN) for text in (prompt, opening))
        reply = BEGIN + reply if in_prompt and not in_opening else reply
        reply = reply.lstrip().removeprefix(BEGIN) if in_opening and not in_prompt else reply
        pieces[:2] = [(opening, False), (reply, True)]
    return pieces


def _add_stop_of_prompt(turn: Turn, text: str, after: str) -> str:
    """Return a text with the stop string that ended it, which the next prompt contains."""
    request = turn.request
    tail = after[len(request.prompt) + len(text) :] if request.stopped(turn.completion) else ""
    return text + next((word for word in request.stop if tail.startswith(word)), "")


def add_stop_string(turn: Turn) -> str:
    """Return a turn's text with the stop string that ended it, if any.

    >>> from harr.types import Generate
    >>> request = Generate(prompt="q", stop=("</search>", "</answer>"))
    >>> [add_stop_string(Turn(request, text)) for text in ("<think>or <answer>?</think> <search>Ada", "Bath.")]
    ['<think>or <answer>?</think> <search>Ada</search>', 'Bath.']
    >>> add_stop_string(Turn(Generate(prompt="Query:", stop=("\\n",)), " Ada"))
    ' Ada\\n'
    """
    request, text = turn.request, turn.request.cut(turn.completion)
    if not request.stopped(turn.completion):
        return text
    begins = {word: text.rfind(word.replace("</", "<", 1)) if word.startswith("</") else 0 for word in request.stop}
    stop = max(begins, key=lambda word: begins[word], default="")
    return text + stop if begins.get(stop, -1) >= 0 else text


def _words(text: str) -> str:
    return " ".join(["", *WORD.findall(fold(text)), ""])


def _length(episode: Episode) -> int:
    return sum(len(turn.completion) for turn in episode.turns)
