"""The introductions of Wikipedia's articles of October 2017, and the questions whose gold is an article of it.

HotpotQA's fullwiki setting (arXiv 1809.09600) and HoVer (arXiv 2011.03088) name their supporting facts by the title of
an article; so a passage's id depends on its title only. The passages are those of BEIR (arXiv 2104.08663).
"""

import hashlib
import html
import unicodedata
from collections.abc import Callable, Iterator

from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import Row
from harr.types import Passage, Question

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
    present: set[str] = set()
    figures: dict[str, float] = {}

    def articles() -> Iterator[Passage]:
        for row in passages:
            text = " ".join(str(row.values.get("text") or "").split())
            if text:  # a few articles have a title only
                passage = Passage(article_id(row.text("title", "passage")), text, row.text("title", "passage"))
                present.update({passage.id} & wanted)
                yield passage
        figures["unreachable_questions"] = 0.0

    def reachable(split: Callable[[], Iterator[Question]]) -> Iterator[Question]:
        for question in split():
            if figures and not present.issuperset(question.gold_ids):
                figures["unreachable_questions"] += 1
            else:
                yield question

    return Source(articles(), reachable(train), reachable(test), figures=figures)


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
