"""bAbI tasks 1 to 5 (arXiv 1502.05698): read the official files, make more stories, and solve them.

A story is a list of facts in English, a question about it, and the facts that answer it (gold), in the order of the
official files. Our generator has the grammar of these files: after every two facts a question may be asked, up to five
per story. We keep one random question of each story and the facts before it, so that stories are independent.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harr.errors import CorpusError
from harr.io.jsonl import Row, read_rows
from harr_lengths.babi_rules import GIVERS, OPPOSITE, PEOPLE, PLACES, THINGS, VERBS, Event, check_task, solve

THERE = {2: {"get": 1.0, "drop": 0.2}, 3: {"get": 0.2, "drop": 0.2}, 5: {"get": 1.0, "drop": 0.2}}
"""How often a sentence ends in "there", by task."""
ASKED = {1: 1.0, 2: 0.79, 3: 0.36, 5: 0.8}
"""How often a question is asked where one can be, such that stories are as long as the official ones."""
QUESTIONS = 5
"""Maximum number of questions per story."""
GIVE_WEIGHT = 3


@dataclass(frozen=True, slots=True)
class Story:
    """A question about ``facts``; ``gold`` are the positions of the facts that answer it."""

    question: str
    answers: tuple[str, ...]
    facts: tuple[str, ...]
    gold: tuple[int, ...]


def make_stories(task: int, count: int, seed: int) -> Iterator[Story]:
    """Make ``count`` stories as in the official files; task 4 has only 7,680 different ones, so they repeat.

    >>> for story in make_stories(1, 1, seed=3):
    ...     print(story.question, story.answers, [story.facts[i] for i in story.gold])
    Where is John? ('garden',) ['John moved to the garden.']

    Raises:
        CorpusError: an unknown task.
    """
    check_task(task)
    rng = random.Random(f"{seed}/qa{task}")
    for _ in range(count):
        yield _make_map(rng) if task == 4 else _make_story(task, rng)


def read_stories(path: Path, task: int) -> Iterator[Story]:
    """Read the stories of an official file: its own text, or JSON lines ``{question, answers, facts, supporting}``.

    Text: ``1 Mary moved to the bathroom.`` is a fact, ``2 Where is Mary? \\tbathroom\\t1`` a question with its answer
    and the numbers of its facts; a story starts at number 1.

    Raises:
        CorpusError: an unknown task, or a wrong line: names the place of the first and what was expected.
    """
    check_task(task)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return (_story_of(row, task) for row in read_rows(path))
    return _read_text(path)


def _make_map(rng: random.Random) -> Story:
    """Make a map of three places in a row; each fact names a place at an end as lying beside the middle, or (1 of 3)
    the middle."""
    middle, *ends = rng.sample(PLACES, 3)
    way = rng.choice(tuple(OPPOSITE))
    events = []
    for end, toward in zip(ends, (way, OPPOSITE[way]), strict=True):
        neighbour = Event(toward, end, middle)
        events.append(neighbour if rng.random() < 2 / 3 else Event(OPPOSITE[toward], middle, end))
    rng.shuffle(events)
    fact = rng.choice(events)
    questions = (f"What is {fact.kind} of the {fact.what}?", f"What is the {fact.what} {OPPOSITE[fact.kind]} of?")
    facts = tuple(f"The {event.who} is {event.kind} of the {event.what}." for event in events)
    return _solved(4, rng.choice(questions), events, facts)


def _make_story(task: int, rng: random.Random) -> Story:
    """Let people act, two facts at a time, until the question can be asked."""
    people = GIVERS if task == 5 else PEOPLE
    at = {name: rng.choice(PLACES) for name in (*people, *THINGS)}
    holder: dict[str, str] = {}
    events: list[Event] = []
    left = rng.randint(1, QUESTIONS)
    while True:
        for _ in range(2):
            events.append(_act(task, rng, people, at, holder))
        if rng.random() < ASKED[task] and (questions := _questions(task, rng, events)):
            left -= 1
            if not left:
                facts = tuple(_say(task, rng, event) for event in events)
                return _solved(task, rng.choice(questions), events, facts)


def _act(task: int, rng: random.Random, people: Sequence[str], at: dict[str, str], holder: dict[str, str]) -> Event:
    """Draw one thing that somebody can do now, and update ``at`` and ``holder``."""
    chances: list[tuple[str, str]] = []
    for who in people:
        chances.append(("move", who))
        if task == 1:
            continue
        if any(thing not in holder and at[thing] == at[who] for thing in THINGS):
            chances.append(("get", who))
        if who in holder.values():
            chances.append(("drop", who))
            if task == 5 and any(at[other] == at[who] for other in people if other != who):
                chances += [("give", who)] * GIVE_WEIGHT
    kind, who = rng.choice(chances)
    if kind == "move":
        at[who] = rng.choice([place for place in PLACES if place != at[who]])
        return Event(kind, who, at[who])
    if kind == "get":
        thing = rng.choice([thing for thing in THINGS if thing not in holder and at[thing] == at[who]])
        holder[thing] = who
        return Event(kind, who, thing)
    thing = rng.choice([thing for thing in THINGS if holder.get(thing) == who])
    if kind == "drop":
        at[thing] = at[who]
        del holder[thing]
        return Event(kind, who, thing)
    holder[thing] = rng.choice([other for other in people if other != who and at[other] == at[who]])
    return Event(kind, who, thing, holder[thing])


def _say(task: int, rng: random.Random, event: Event) -> str:
    verb = rng.choice(VERBS[event.kind])
    if event.kind == "move":
        return f"{event.who} {verb} to the {event.what}."
    if event.kind == "give":
        return f"{event.who} {verb} the {event.what} to {event.receiver}."
    there = " there" if rng.random() < THERE[task][event.kind] else ""
    return f"{event.who} {verb} the {event.what}{there}."


def _questions(task: int, rng: random.Random, events: Sequence[Event]) -> list[str]:
    """Return the questions that can be asked now; for task 5, one about the last gift."""
    if task == 5:
        gift = next((event for event in reversed(events) if event.kind == "give"), None)
        return [_ask_gift(rng, gift)] if gift else []
    if task == 1:
        questions = [f"Where is {who}?" for who in PEOPLE]
    elif task == 2:
        questions = [f"Where is the {thing}?" for thing in THINGS]
    else:
        questions = [f"Where was the {thing} before the {place}?" for thing in THINGS for place in PLACES]
    return [question for question in questions if solve(task, question, events)]


def _ask_gift(rng: random.Random, gift: Event) -> str:
    who, what, receiver = gift.who, gift.what, gift.receiver
    giver = rng.choice((f"Who gave the {what} to {receiver}?", f"Who gave the {what}?"))
    taker = rng.choice((f"Who did {who} give the {what} to?", f"Who received the {what}?"))
    return rng.choice((f"What did {who} give to {receiver}?", giver, taker))


def _solved(task: int, question: str, events: Sequence[Event], facts: tuple[str, ...]) -> Story:
    solution = solve(task, question, events)
    assert solution is not None, (question, facts)
    return Story(question, (solution[0],), facts, solution[1])


def _story_of(row: Row, task: int) -> Story:
    name = str(row.values.get("task") or f"qa{task}")
    if name.split("_")[0] != f"qa{task}":
        raise CorpusError(
            f"{row.place}: a story of {name!r}; expected qa{task}; set download.settings.task to the file's task"
        )
    facts, answers = row.strings("facts"), row.strings("answers")
    if not facts or not answers:
        raise CorpusError(f"{row.place}: a story with {len(facts)} facts and {len(answers)} answers; expected both")
    gold = row.values.get("supporting")
    if not isinstance(gold, list) or not gold or not all(type(place) is int for place in gold):
        raise CorpusError(f"{row.place}: supporting is {str(gold)[:40]!r}; expected a list of fact positions from 0")
    _positions(gold, list(range(len(facts))), row.place)
    return Story(row.text("question", "story"), answers, tuple(" ".join(fact.split()) for fact in facts), tuple(gold))


def _read_text(path: Path) -> Iterator[Story]:
    if not path.is_file():
        raise CorpusError(f"{path} is missing; name files that are there in section download")
    facts: dict[int, str] = {}
    before = 0
    with path.open("rb") as handle:
        for number, raw in enumerate(handle, 1):
            place = f"{path}:{number}"
            line = raw.decode("utf-8", "replace").strip()
            if not line:
                continue
            match = re.fullmatch(r"(\d+) ([^\t]*\S)\s*?(?:\t([^\t]+)\t([\d ]+))?", line)
            if not match:
                raise CorpusError(
                    f"{place}: {line[:40]!r} is neither a fact (`1 Mary moved to the bathroom.`) nor a question "
                    "(number, question, tab, answer, tab, fact numbers)"
                )
            start, text, answer, names = int(match[1]), match[2], match[3], match[4]
            if start not in (1, before + 1):
                raise CorpusError(f"{place}: line number {start} in its story; expected {before + 1}, or 1 to begin")
            facts, before = ({} if start == 1 else facts), start
            if answer is None:
                facts[start] = " ".join(text.split())
                continue
            gold = _positions([int(name) for name in names.split()], list(facts), place)
            yield Story(" ".join(text.split()), (answer.strip(),), tuple(facts.values()), gold)


def _positions(names: Sequence[int], numbers: list[int], place: str) -> tuple[int, ...]:
    for name in names:
        if name not in numbers:
            raise CorpusError(f"{place}: supporting fact {name} is outside the story; expected one of {numbers}")
    return tuple(numbers.index(name) for name in names)
