"""Passages written to disk, and the links between them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harr_links.passage_graph import PassageGraph
from harr_links.tables import open_links

from harr.corpus.passages import Passages, write_passages
from harr.index.corpus import Corpus
from harr.types import Passage


def leads_of(folder: Path, shelf: Sequence[Passage], hidden: Sequence[str] = ()) -> PassageGraph:
    """Return the links of a shelf in whose index the ``hidden`` passages are missing."""
    write_passages(shelf, folder / "corpus", searchable=lambda passage: passage.id not in hidden)
    return graph_of(Passages.open(folder / "corpus"), folder / "tables")


def graph_of(passages: Passages, tables: Path) -> PassageGraph:
    """Return the links of a corpus; their tables are made in a folder."""
    unread: Any = None
    return open_links(Corpus(passages, unread, unread, tables)).graph
