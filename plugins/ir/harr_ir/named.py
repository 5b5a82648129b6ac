"""Data sets that the package ir_datasets knows by name."""

from collections.abc import Callable, Iterator
from typing import Any

import ir_datasets

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.errors import CorpusError, one_line
from harr.params.fields import PathOrName
from harr_ir.judged import JudgedParams, Judgements, open_judged


class NamedParams(JudgedParams):
    """Data sets that ir_datasets knows by name."""

    train: PathOrName
    """Name of the part to train on, such as beir/nfcorpus/train."""
    test: PathOrName
    """Name of the part to test on, such as beir/nfcorpus/test, whose documents are the passages."""


def open_named(params: NamedParams) -> Source:
    """Open a data set of the package ir_datasets, which downloads it to its own folder.

    Raises:
        CorpusError: there is no such data set, it lacks questions or judgements, or it cannot be downloaded.
    """

    def opened(name: str) -> Any:
        try:
            return ir_datasets.load(name)
        except KeyError:
            raise CorpusError(f"download: {name} is no data set of ir_datasets; `ir_datasets list` names all") from None

    def split(name: str) -> tuple[dict[str, str], Judgements]:
        found = opened(name)
        if not (found.has_queries() and found.has_qrels()):
            raise CorpusError(f"download: {name} of ir_datasets has no judged queries; take one of its parts that has")
        judged: Judgements = {}
        for one in _fetched(found.qrels_iter, name):
            judged.setdefault(one.query_id, {})[one.doc_id] = int(one.relevance)
        return {query.query_id: query.default_text() for query in _fetched(found.queries_iter, name)}, judged

    opened(params.train)  # a wrong name fails before anything is downloaded
    documents = _fetched(opened(params.test).docs_iter, params.test)
    texts = (
        (one.doc_id, getattr(one, "title", ""), getattr(one, "text", "") or one.default_text()) for one in documents
    )
    return open_judged(params, texts, split)


def _fetched(rows: Callable[[], Iterator[Any]], name: str) -> Iterator[Any]:
    """Yield the rows; report a file that cannot be downloaded in one line, as some are only downloaded on iteration."""
    try:
        yield from rows()
    except (OSError, RuntimeError, ValueError) as error:
        raise CorpusError(
            f"download: {name} of ir_datasets cannot be read ({one_line(error)}); connect, or put its files where "
            "`ir_datasets` keeps them (IR_DATASETS_HOME)"
        ) from None


DATASET = Dataset(open_named, lambda params: f"{params.test} of ir_datasets", settings=NamedParams)
