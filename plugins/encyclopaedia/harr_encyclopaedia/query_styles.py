"""A teacher of search queries for the fictional world, which writes them in several styles, most often in a poor one.

A small language model learns three things from it: to query for what is not known yet, to read in the passages what is
known, and to follow the style of the demonstrations in its prompt. Without any it writes in any style; which one finds
most is for LeReT to learn (``harr/preferences/collect.py``).
"""

import random
from collections.abc import Sequence

from harr.generator.demonstrations import Piece
from harr.rag.pipelines.leret import Demonstration, completion_text, query_of, render, request
from harr.types import Generator, Hop, Passage, Question, Search
from harr_encyclopaedia import grammar
from harr_encyclopaedia.scripted import facts
from harr_encyclopaedia.traces import Oracle, Reader

QUERY_HOPS = (2,)
"""Numbers of hops of the questions for which queries are learnt."""

STYLES = {"question": 0.5, "start": 0.2, "facts": 0.3}
"""Rate of each style where no demonstration shows one."""
SITUATIONS = 4
"""Maximum number of queries in a training text: up to three demonstrations, and the query that follows them."""
LATER = 0.75
"""Share of queries for a later hop than the first, among questions with several."""
UNFOUND = 0.15
"""Share of those whose passages do not state what the first hop should have found."""


def query(question: str, context: Sequence[Passage], style: str) -> str:
    """Return the next search query, given the ``context``; a question that cannot be parsed is returned as it is.

    ``question``: the whole question again. ``start``: the thing that it starts from. ``facts``: what the passages
    state, and what to find out next.

    >>> text, found = "Where was the mother of Ada Brown born?", [Passage("p", "Her mother was Eva Gray.", "Ada Brown")]
    >>> query(text, found, "start"), query(text, (), "facts")
    ('Ada Brown', 'the mother of Ada Brown')
    >>> query(text, found, "facts")
    'the mother of Ada Brown is Eva Gray, the birthplace of Eva Gray'
    """
    chain = grammar.parse(question)
    if chain is None or style == "question":
        return question
    if style == "start":
        return chain.start
    subject, prefix, known = chain.start, "", 0
    rows = [(passage.title, passage.text) for passage in context]
    for relation in chain.relations[:-1]:
        values = facts(relation, subject, rows)
        if len(values) != 1:
            break
        value = values.pop()
        subject, prefix, known = value, f"{prefix}{grammar.phrase(relation, subject)} is {value}, ", known + 1
    return prefix + grammar.phrase(chain.relations[known], subject)


def examples(reader: Reader, rng: random.Random, passages: int) -> list[Piece]:
    """Write one to ``SITUATIONS`` queries of one style, each after its question and what was found so far.

    >>> from harr_encyclopaedia.traces import open_world
    >>> pieces = examples(open_world(0, hops=(2,)), random.Random(0), passages=3)
    >>> pieces[0][0].startswith("Question: "), pieces[1][1]
    (True, True)
    """
    style = rng.choices(tuple(STYLES), tuple(STYLES.values()))[0]
    pieces: list[Piece] = []
    for number in range(rng.randint(1, SITUATIONS)):
        question = rng.choice(reader.questions)
        context = _find_passages(question, reader, rng, passages)
        prompt = render(question.text, context)[0]
        completion = completion_text(query(question.text, context, style), "bare")
        pieces += [(f"\n{prompt}" if number else prompt, False), (completion, True)]
    return pieces


def share_as_taught(generator: Generator, reader: Reader, number: int, passages: int) -> float:
    """Return the share of later-hop queries as the teacher writes them, after one demonstration of style ``facts``."""
    rng = random.Random(0)
    requests, wanted = [], []
    for _ in range(number):
        example_question, asked = rng.sample(reader.questions, 2)
        first, second = (
            _find_passages(question, reader, rng, passages, later=1.0) for question in (example_question, asked)
        )
        example = Demonstration(example_question.text, first, query(example_question.text, first, "facts"))
        requests.append(request(render(asked.text, second, [example])[0], "bare"))
        wanted.append(query(asked.text, second, "facts"))
    written = map(query_of, generator.complete(requests))
    return sum(found == want for found, want in zip(written, wanted, strict=True)) / number


def _find_passages(
    question: Question, reader: Reader, rng: random.Random, passages: int, later: float = LATER
) -> tuple[Passage, ...]:
    """Return what earlier hops have found: nothing for the first hop, or the passages of all finished hops."""
    goes_on = len(question.gold_ids) > 1 and rng.random() < later
    oracle = Oracle(reader, rng, passages, UNFOUND)
    found: dict[str, Passage] = {}
    for hop in range(rng.randint(1, len(question.gold_ids) - 1) if goes_on else 0):
        search = Search(question, question.text, (Hop("", ""),) * hop, frozenset(found))
        found |= {passage.id: passage for passage in oracle.retrieve([search])[0].passages}
    return tuple(found.values())
