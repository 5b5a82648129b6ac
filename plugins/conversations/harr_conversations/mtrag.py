"""MTRAG: human conversations with retrieval judged by turn (arXiv 2501.03468), from a checkout of its repository.

A turn's history is the earlier questions without the answers, as in the benchmark's own tasks.
"""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal
from zlib import crc32

from pydantic import Field

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import Row, read_rows
from harr.params.download import QuestionsParams
from harr.params.fields import NonEmpty, PathOrName
from harr.types import Hop, Passage, Question
from harr_conversations.data import REWRITE, set_apart

USER = re.compile(r"(?:^|\n)\|user\|: ")
Domain = Literal["clapnq", "cloud", "fiqa", "govt"]


class MtragParams(QuestionsParams):
    """A checkout of MTRAG's repository (``download.settings``)."""

    folder: PathOrName
    """The checkout, with the files of corpora/passage_level unpacked."""
    domains: NonEmpty[Domain] = ("clapnq", "cloud", "fiqa", "govt")
    """Corpora that are searched together; each is a setting."""
    test_share: float = Field(0.5, gt=0, lt=1)
    """Share of the conversations used for testing, by a hash of their name: MTRAG has none for training."""


def load(params: MtragParams) -> Source:
    """Open the conversations and the passages of the domains."""
    root, train, test = Path(params.folder), list[list[Question]](), list[list[Question]]()
    for domain in dict.fromkeys(params.domains):
        for name, turns in _read_conversations(root, domain).items():
            (test if crc32(name.encode()) % 1000 < 1000 * params.test_share else train).append(turns)
    train, apart = set_apart(train, params.validation_questions)
    return Source(
        passages=chain.from_iterable(_read_passages(root, domain) for domain in dict.fromkeys(params.domains)),
        train=chain.from_iterable(train),
        test=chain.from_iterable(test),
        validation=chain.from_iterable(apart) if apart else None,
    )


DATASET = Dataset(load, lambda params: f"MTRAG ({', '.join(params.domains)})", settings=MtragParams)


def _read_passages(root: Path, domain: str) -> Iterator[Passage]:
    for row in read_rows(root / "corpora/passage_level" / f"{domain}.jsonl"):
        title = str(row.values.get("title") or "")
        yield Passage(row.text("_id", "passage"), row.text("text", "passage"), title, domain)


def _read_conversations(root: Path, domain: str) -> dict[str, list[Question]]:
    """Return the judged turns of every conversation.

    Raises:
        CorpusError: a file is missing, or a turn does not start as MTRAG's do.
    """
    tasks = root / "mtrag-human/retrieval_tasks" / domain
    gold: dict[str, list[str]] = {}
    try:
        with (tasks / "qrels/dev.tsv").open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file, delimiter="\t"):
                if float(line["score"]) > 0:
                    gold.setdefault(line["query-id"], []).append(line["corpus-id"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{tasks}/qrels/dev.tsv cannot be read ({error}); folder must be a checkout of MTRAG"
        ) from None
    rewrites = {row.text("_id", "turn"): _asked(row)[-1] for row in read_rows(tasks / f"{domain}_rewrite.jsonl")}
    conversations: dict[str, list[Question]] = {}
    for row in read_rows(tasks / f"{domain}_questions.jsonl"):
        key = row.text("_id", "turn")
        *before, last = _asked(row)
        if key in gold:
            conversations.setdefault(key.partition("<::>")[0], []).append(
                Question(
                    key,
                    last,
                    gold_ids=tuple(gold[key]),
                    kind="later" if before else "first",
                    level=f"turn {len(before) + 1}",
                    setting=domain,
                    notes={REWRITE: rewrites[key]} if key in rewrites else {},
                    history=tuple(Hop(asked, "") for asked in before),
                )
            )
    return conversations


def _asked(row: Row) -> list[str]:
    """Return what the user asked, turn by turn.

    >>> _asked(Row({"text": "|user|: Who founded Acme?\\n|user|: Where was she born?"}, "here"))
    ['Who founded Acme?', 'Where was she born?']
    """
    head, *asked = USER.split(text := str(row.values.get("text")))
    if head or not asked:
        raise CorpusError(f"{row.place}: {text[:40]!r} does not begin with '|user|: ', as MTRAG's turns do")
    return asked
