"""HoVer (arXiv 2011.03088): claims to verify, each over two to four articles."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harr.corpus.sample import draw_rows
from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.datasets.splits import rows_to_read
from harr.errors import CorpusError
from harr.io.jsonl import Row, read_rows
from harr.params.download import DrawnParams
from harr.params.fields import MaybePathOrName, NonEmpty, PathOrName
from harr.types import Question
from harr_wiki17.articles import article_id, articles, origin, over_wiki17

FILES = {
    "train": ("hover_train_release_v1.1.json", "train*.parquet"),
    "test": ("hover_dev_release_v1.1.json", "validation*.parquet"),
}
"""The official file, or the hub's; the development split is our test split."""
LABELS = {"NOT_SUPPORTED": "no", "SUPPORTED": "yes"}
"""Answers to ASKS, in the order of the classes in the hub's files."""
ASKS = "Is this statement supported?"


class HoverParams(DrawnParams):
    """Claims to verify, each over two to four articles of Wikipedia's introductions of 2017 (arXiv 2011.03088)."""

    claims: PathOrName
    """Folder with HoVer's official JSON files, or with the hub's parquet files."""
    root: MaybePathOrName = ""
    """Folder with the hub's files of the articles as ``<repository>/<file>``; if empty, they are downloaded."""
    hops: NonEmpty[Annotated[int, Field(ge=2, le=4)]] = (2, 3, 4)
    """Numbers of articles that the kept claims need."""


def hover(params: HoverParams) -> Source:
    """Open HoVer's claims over wiki17; a claim's gold is the articles it rests on, its answer yes or no.

    Raises:
        CorpusError: a file is missing, or a row is not in HoVer's format.
    """

    def split(name: str, limit: int) -> Callable[[], Iterator[Question]]:
        official, hub = FILES[name]
        folder = Path(params.claims)
        paths = [folder / official] if (folder / official).exists() else sorted(folder.glob(hub))
        if not paths:
            raise CorpusError(f"download: neither {official} nor {hub} in {params.claims}; put HoVer's files there")

        def questions() -> Iterator[Question]:
            claims = map(claim, chain.from_iterable(map(read_rows, paths)))
            rows = (claim for claim in claims if int(claim.kind[0]) in params.hops)
            return iter(draw_rows(rows, limit, params.seed, lambda claim: claim.kind))

        return questions

    train, test = split("train", rows_to_read(params)), split("test", params.test_questions)
    return over_wiki17(train, test, articles(params.root))


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


DATASET = Dataset(hover, origin, vast=True, settings=HoverParams)
