"""What the sentences of bAbI tasks 1 to 5 state, and which of them answer a question (arXiv 1502.05698)."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from harr.errors import CorpusError

TASKS = (1, 2, 3, 4, 5)
PEOPLE = ("Mary", "John", "Sandra", "Daniel")
GIVERS = ("Mary", "Bill", "Fred", "Jeff")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
THINGS = ("apple", "football", "milk")
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
VERBS = {
    "move": ("went", "went back", "moved", "journeyed", "travelled"),
    "get": ("got", "grabbed", "picked up", "took"),
    "drop": ("discarded", "dropped", "left", "put down"),
    "give": ("gave", "handed", "passed"),
}


class Event(NamedTuple):
    """The content of a fact: ``who`` did ``kind`` with ``what``; for places, ``who`` lies ``kind`` of ``what``."""

    kind: str
    who: str
    what: str
    receiver: str = ""


class _Holding(NamedTuple):
    """Who held a thing from fact ``taken`` to ``end``; ``last``: where it was dropped, else taken."""

    who: str
    taken: int
    last: int
    end: int


Solution = tuple[str, tuple[int, ...]] | None


def _any(words: Sequence[str]) -> str:
    return f"({'|'.join(sorted(words, key=len, reverse=True))})"


_WHO, _WHAT, _WHERE = _any((*PEOPLE, *GIVERS)), _any(THINGS), _any(PLACES)
_FACTS = {
    "move": re.compile(f"{_WHO} {_any(VERBS['move'])} to the {_WHERE}\\b"),
    "get": re.compile(f"{_WHO} {_any(VERBS['get'])} the {_WHAT}\\b"),
    "drop": re.compile(f"{_WHO} {_any(VERBS['drop'])} the {_WHAT}\\b"),
    "give": re.compile(f"{_WHO} {_any(VERBS['give'])} the {_WHAT} to {_WHO}\\b"),
    "lies": re.compile(f"[Tt]he {_WHERE} is {_any(tuple(OPPOSITE))} of the {_WHERE}\\b"),
}
_QUESTIONS = {
    1: (re.compile(f"Where is {_WHO}\\?"),),
    2: (re.compile(f"Where is the {_WHAT}\\?"),),
    3: (re.compile(f"Where was the {_WHAT} before the {_WHERE}\\?"),),
    4: (
        re.compile(f"What is {_any(tuple(OPPOSITE))} of the {_WHERE}\\?"),
        re.compile(f"What is the {_WHERE} {_any(tuple(OPPOSITE))} of\\?"),
    ),
    5: (
        re.compile(f"What did (?P<who>{_WHO}) give to (?P<receiver>{_WHO})\\?"),
        re.compile(f"Who gave the (?P<what>{_WHAT}) to (?P<receiver>{_WHO})\\?"),
        re.compile(f"Who gave the (?P<what>{_WHAT})\\?"),
        re.compile(f"Who did (?P<who>{_WHO}) give the (?P<what>{_WHAT}) to\\?"),
        re.compile(f"Who received the (?P<what>{_WHAT})\\?"),
    ),
}
_ASKED_FOR = ("what", "who", "who", "receiver", "receiver")


def event_of(sentence: str) -> Event | None:
    """Return what a sentence states in the words of bAbI; None if it states nothing of the kind.

    >>> event_of("Mary went back to the kitchen.")
    Event(kind='move', who='Mary', what='kitchen', receiver='')
    >>> event_of("Call me Ishmael.")
    """
    for kind, pattern in _FACTS.items():
        if match := pattern.search(sentence):
            parts = match.groups()
            if kind == "lies":
                return Event(parts[1], parts[0], parts[2])
            return Event(kind, parts[0], parts[2], parts[3] if kind == "give" else "")
    return None


def check_task(task: int) -> None:
    """Check that a task is one of the five."""
    if task not in TASKS:
        raise CorpusError(f"task {task} is unknown; expected a bAbI task from 1 to 5")


def solve(task: int, question: str, events: Sequence[Event]) -> Solution:
    """Answer a question and name the facts that it follows from; None if it does not follow.

    Task 1: the last move. 2: where a thing was taken or dropped last, and its holder's last move.
    3: that, the last arrival at the place of the question, and the stop before. 4: the relation.
    5: the last gift of the persons and things named.
    """
    for form, pattern in enumerate(_QUESTIONS[task]):
        if match := pattern.fullmatch(question.strip()):
            if task == 5:
                return _solve_gift(_ASKED_FOR[form], match.groupdict(), events)
            return _SOLVERS[task](match.groups(), events)
    return None


def _moves(events: Sequence[Event], who: str, start: int, end: int) -> list[int]:
    """Return the facts between ``start`` and ``end`` in which a person moves."""
    return [i for i in range(start, end) if events[i].kind == "move" and events[i].who == who]


def _find_hold(events: Sequence[Event], thing: str) -> _Holding | None:
    """Return the last holding of a thing; None if nobody ever took it."""
    last = _latest(events, thing, ("get", "drop"), len(events))
    if last < 0:
        return None
    who = events[last].who
    if events[last].kind == "get":
        return _Holding(who, last, last, len(events))
    return _Holding(who, max(0, _latest(events, thing, ("get",), last)), last, last)


def _latest(events: Sequence[Event], thing: str, kinds: Sequence[str], end: int) -> int:
    return next((i for i in reversed(range(end)) if events[i].what == thing and events[i].kind in kinds), -1)


def _solve_person(words: Sequence[str], events: Sequence[Event]) -> Solution:
    moves = _moves(events, words[0], 0, len(events))
    return (events[moves[-1]].what, (moves[-1],)) if moves else None


def _solve_thing(words: Sequence[str], events: Sequence[Event]) -> Solution:
    """Answer where a thing is; in the official files a thing has no known place if its holder has not moved since."""
    hold = _find_hold(events, words[0])
    if hold is None:
        return None
    dropped = hold.last == hold.end
    moves = _moves(events, hold.who, 0 if dropped else hold.taken, hold.end)
    return (events[moves[-1]].what, (hold.last, moves[-1])) if moves else None


def _solve_before(words: Sequence[str], events: Sequence[Event]) -> Solution:
    hold = _find_hold(events, words[0])
    stops = _moves(events, hold.who, hold.taken, hold.end) if hold else []
    for before, arrival in reversed(list(pairwise(stops))):
        if hold and events[arrival].what == words[1]:
            return events[before].what, (hold.last, arrival, before)
    return None


def _solve_place(words: Sequence[str], events: Sequence[Event]) -> Solution:
    """Answer which place lies in a direction; ``words`` are a direction and the place it starts from, or a place and
    the direction it lies in."""
    way, start = (words[0], words[1]) if words[0] in OPPOSITE else (OPPOSITE[words[1]], words[0])
    for i, event in enumerate(events):
        if event.kind == way and event.what == start:
            return event.who, (i,)
        if event.kind == OPPOSITE[way] and event.who == start:
            return event.what, (i,)
    return None


def _solve_gift(asked_for: str, words: dict[str, str], events: Sequence[Event]) -> Solution:
    for i, event in reversed(list(enumerate(events))):
        if event.kind == "give" and all(getattr(event, key) == word for key, word in words.items()):
            return getattr(event, asked_for), (i,)
    return None


_SOLVERS: dict[int, Callable[[Sequence[str], Sequence[Event]], Solution]] = {
    1: _solve_person,
    2: _solve_thing,
    3: _solve_before,
    4: _solve_place,
}
