"""HotpotQA's fullwiki setting (arXiv 1809.09600): its questions over all articles."""

from dataclasses import replace
from typing import Literal

from harr_open_domain.hub import Read, hotpot_row, open_splits

from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.io.jsonl import Row
from harr.params.download import DrawnParams
from harr.params.fields import MaybePathOrName
from harr_wiki17.articles import article_id, articles, origin, over_wiki17


class FullwikiParams(DrawnParams):
    """The questions of HotpotQA over the introductions of the 5,233,329 articles of 2017."""

    root: MaybePathOrName = ""
    """Folder with the hub's files as ``<repository>/<file>``; if empty, they are downloaded."""
    train_level: tuple[Literal["easy", "medium", "hard"], ...] = ()
    """Levels of the training questions to learn from; the development split, our test split, is all hard."""


def fullwiki(params: FullwikiParams) -> Source:
    """Open HotpotQA; a question's gold is the articles that its supporting facts name."""
    train, test = open_splits("hotpotqa", params, _row, root=params.root, levels=params.train_level)
    return over_wiki17(
        lambda: (question for question, _ in train()),
        lambda: (question for question, _ in test()),
        articles(params.root),
    )


def _row(row: Row) -> Read:
    question, _ = hotpot_row(row)
    gold = dict.fromkeys(map(article_id, row.values["supporting_facts"]["title"]))
    return replace(question, gold_ids=tuple(gold), candidate_ids=()), []


DATASET = Dataset(fullwiki, origin, vast=True, settings=FullwikiParams)
