"""Rules on the retriever and its index: further rules of :mod:`harr.params.rules`."""

from typing import TYPE_CHECKING

from harr.params.retriever import RetrieverParams
from harr.params.rule_words import LANGUAGE_MODEL, either, methods

if TYPE_CHECKING:
    from harr.params import Params

OF_VALUES = ("positions", "pick_order", "value_scale")
"""The parameters of a retriever that learns values."""


def index_has_what_is_searched(params: "Params") -> None:
    """Check that the BM25 index exists if it is searched, and that the settings of a search are read."""
    retriever, search = params.retriever, params.retriever.search
    arms = params.evaluate.arm_table.items()
    by_words = {name: arm.search for name, arm in arms if arm.reads_words}
    if (by_words or search != "dense") and not params.index.full_text:
        what = f"the arm {min(by_words)}" if by_words else f"retriever.search {search}"
        raise ValueError(f"{what} needs the BM25 index; set index.full_text: true")
    if search != "dense" and retriever.candidates == "question":
        raise ValueError(
            f"retriever.search {search} is for candidates: corpus; given passages are not searched, "
            "they all compete; set retriever.search: dense"
        )


def retriever_ranks_as_it_learns(params: "Params") -> None:
    """Check that the method reads the retriever's parameters."""
    train, retriever = params.train, params.retriever
    given_only = {retriever.candidates, *params.evaluate.candidates} == {"question"}
    if train.given_only and (params.pipeline.name not in train.plays or not given_only):
        raise ValueError(
            f"train.method {train.method} plays pipeline {either(train.plays)}; set retriever.candidates: question, "
            "evaluate.candidates: [question]"
        )
    if retriever.encoder and train.positions:
        raise ValueError(
            f"retriever.encoder reads states for vectors that stay, and train.method {train.method} trains both "
            "towers; leave it out"
        )
    if retriever.learns != "all" and (train.positions or train.learns == LANGUAGE_MODEL):
        raise ValueError(
            f"retriever.learns {retriever.learns} is for a query encoder over vectors that stay; with train.method "
            f"{train.method} leave it out"
        )
    if params.merge.towers == "query" and train.positions:
        raise ValueError(f"merge.towers query leaves out a tower that train.method {train.method} trains; leave it out")
    fields = RetrieverParams.model_fields
    unread = [f"retriever.{name}" for name in OF_VALUES if getattr(retriever, name) != fields[name].default]
    if not params.encoder.normalize:
        unread.append("encoder.normalize")
    if unread and not (train.positions or train.foreign):
        raise ValueError(f"{unread[0]} is for train.method {methods(positions=True)}; leave it out")
    if retriever.function and train.learns != LANGUAGE_MODEL:
        raise ValueError(
            f"retriever.function is for train.method {methods(learns=LANGUAGE_MODEL)}: a retriever that learns ranks by "
            "its own vectors; leave it out"
        )


RETRIEVER_RULES = (index_has_what_is_searched, retriever_ranks_as_it_learns)
