"""The introductions of Wikipedia's articles of October 2017, and the questions whose gold is an article of it.

HotpotQA's fullwiki setting (arXiv 1809.09600) and HoVer (arXiv 2011.03088) name their supporting facts by the title of
an article; so a passage's id depends on its title only. The passages are those of BEIR (arXiv 2104.08663).
"""

import hashlib
import html
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import Row
from harr.params.download import HoverParams
from harr.types import Passage, Question

HOVER_FILES = {
    "train": ("hover_train_release_v1.1.json", "train*.parquet"),
    "test": ("hover_dev_release_v1.1.json", "validation*.parquet"),
}
"""The official file, or the hub's; the development split is our test split."""
LABELS = {"NOT_SUPPORTED": "no", "SUPPORTED": "yes"}
"""Answers to ASKS, in the order of the classes in the hub's files."""
ASKS = "Is this statement supported?"


def article_id(title: str) -> str:
    """Return the id of the article with this title; entities, white space and the Unicode form do not matter.

    >>> article_id("AT&amp;T") == article_id(" AT&T")
    True
    """
    plain = " ".join(unicodedata.normalize("NFC", html.unescape(title)).split())
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def over_wiki17(
    train: Callable[[], Iterator[Question]], test: Callable[[], Iterator[Question]], passages: Iterator[Row]
) -> Source:
    """Yield questions over the articles. Once ``passages`` are read, those are left out and counted in ``figures``
    whose gold is not there; before, none is."""
    wanted = {pid for split in (train, test) for question in split() for pid in question.gold_ids}
    found: set[str] = set()
    figures: dict[str, float] = {}

    def articles() -> Iterator[Passage]:
        for row in passages:
            text = " ".join(str(row.values.get("text") or "").split())
            if text:  # a few articles have a title only
                passage = Passage(article_id(row.text("title", "passage")), text, row.text("title", "passage"))
                found.update({passage.id} & wanted)
                yield passage
        figures["unreachable_questions"] = 0.0

    def reachable(split: Callable[[], Iterator[Question]]) -> Iterator[Question]:
        for question in split():
            if figures and not found.issuperset(question.gold_ids):
                figures["unreachable_questions"] += 1
            else:
                yield question

    return Source(articles(), reachable(train), reachable(test), figures=figures)


def fullwiki(question: Question, row: Row) -> Question:
    """Return a question of HotpotQA whose gold are articles, and which is given no passages."""
    titles = row.values["supporting_facts"]["title"]
    gold = tuple(dict.fromkeys(article_id(title) for title in titles))
    return replace(question, gold_ids=gold, candidate_ids=())


def hover(params: HoverParams, read: Callable[[Path], Iterator[Row]], passages: Iterator[Row]) -> Source:
    """Return claims of HoVer with the articles they rest on, in the order of the first mention; the answer is yes or
    no.

    Raises:
        CorpusError: a file is not there, or a row is not in HoVer's format.
    """

    def split(name: str, limit: int) -> Callable[[], Iterator[Question]]:
        paths = [path for pattern in HOVER_FILES[name] for path in sorted(Path(params.claims).glob(pattern))]
        if not paths:
            official, hub = HOVER_FILES[name]
            raise CorpusError(f"download: neither {official} nor {hub} in {params.claims}; put HoVer's files there")

        def questions() -> Iterator[Question]:
            rows = (claim(row) for path in paths[: 1 if paths[0].suffix == ".json" else None] for row in read(path))
            wanted = (question for question in rows if int(question.kind[0]) in params.hops)
            return islice(wanted, limit or None)

        return questions

    return over_wiki17(split("train", params.train_questions), split("test", params.test_questions), passages)


def claim(row: Row) -> Question:
    """Return a question from ``{uid, claim, supporting_facts, label, num_hops}``.

    >>> facts = [["Ada Brown", 0], ["Acme", 1], ["Ada Brown", 2]]
    >>> values = {"uid": "a", "claim": "Ada Brown founded Acme.", "supporting_facts": facts, "num_hops": 2}
    >>> question = claim(Row({**values, "label": "SUPPORTED"}, "f:1"))
    >>> question.text, question.answers, len(question.gold_ids), question.kind
    ('Is this statement supported? Ada Brown founded Acme.', ('yes',), 2, '2hop')
    """
    facts, label, hops = (row.values.get(key) for key in ("supporting_facts", "label", "num_hops"))
    try:
        titles = [fact["key"] if isinstance(fact, dict) else fact[0] for fact in facts or ()]
        answer = LABELS[label if label in LABELS else list(LABELS)[int(label)]]  # type: ignore[arg-type]
        gold = tuple(dict.fromkeys(article_id(title) for title in titles))
        kind = f"{int(hops)}hop"  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        gold = ()
    if not gold:
        raise CorpusError(
            f"{row.place}: no claim of HoVer; expected uid, claim, supporting_facts [[title, sentence], ...], "
            f"label {' or '.join(LABELS)}, num_hops (found {sorted(row.values)})"
        )
    return Question(row.text("uid", "claim"), f"{ASKS} {row.text('claim', 'claim')}", (answer,), gold, (), kind)
