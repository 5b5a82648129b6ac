"""Passages written to disk with their mentions and their words, as an index of a corpus has them."""

from collections.abc import Sequence
from pathlib import Path

from harr.corpus.passages import Passages, write_passages
from harr.index.mentions import Mentions, build_mentions
from harr.index.words import WordIndex, build_words
from harr.rag.retrieval.passage_graph import PassageGraph
from harr.types import Passage


def leads_of(folder: Path, shelf: Sequence[Passage], hidden: Sequence[str] = ()) -> PassageGraph:
    """What leads where on a shelf, in whose index the ``hidden`` passages are not."""
    write_passages(shelf, folder / "corpus", searchable=lambda passage: passage.id not in hidden)
    passages = Passages.open(folder / "corpus")
    build_mentions(passages, folder / "mentions", folder / "work")
    build_words(passages, folder / "words", folder / "work")
    return PassageGraph(passages, Mentions.of(passages, folder / "mentions"), WordIndex.of(passages, folder / "words"))
