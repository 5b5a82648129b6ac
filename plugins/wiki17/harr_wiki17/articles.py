"""The introductions of Wikipedia's articles of October 2017, and questions whose gold is among them.

HotpotQA's fullwiki setting (arXiv 1809.09600) and HoVer (arXiv 2011.03088) name supporting facts by article title, so a
passage's id depends only on its title. The passages are those of BEIR (arXiv 2104.08663).
"""

import hashlib
import html
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from harr_open_domain.hub import fetch

from harr.datasets.source import Source
from harr.io.jsonl import Row, read_rows
from harr.types import Passage, Question

WIKI17 = ("BeIR/hotpotqa", "corpus.jsonl.gz")


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
    """Yield questions over the articles. Once ``passages`` are read, questions whose gold is not there are left out and
    counted in ``figures``; before, none is."""
    wanted = {pid for split in (train, test) for question in split() for pid in question.gold_ids}
    present: set[str] = set()
    figures: dict[str, float] = {}

    def found() -> Iterator[Passage]:
        for row in passages:
            text = " ".join(str(row.values.get("text") or "").split())
            if text:  # a few articles have only a title
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

    return Source(found(), reachable(train), reachable(test), figures=figures)


def articles(root: str) -> Iterator[Row]:
    """Yield rows ``{_id, title, text}`` of wiki17; nothing is downloaded before the first is requested."""
    for path in fetch(*WIKI17, root):
        yield from read_rows(path)


def origin(params: Any) -> str:
    """Describe where the passages come from."""
    return f"{WIKI17[0]}, from {f'the folder {params.root}' if params.root else 'the hub'}"
