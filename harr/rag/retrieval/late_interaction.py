"""Late interaction: every token of a query looks for its like among a passage's tokens (ColBERT, arXiv 2004.12832).

A multi-vector model of sentence-transformers orders the first passages of another search anew. Token vectors of a
whole corpus would take a hundred times the room of one vector a passage, so those of the passages that come up are made
as they come up, and kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from harr.errors import ModelError
from harr.io.files import fingerprint, read_json
from harr.io.model_folder import file_hashes, find_folder, load_safely
from harr.types import Retrieval, Retriever, Search

KEPT = 10_000
"""Number of passages whose token vectors are kept, the latest; 128 numbers for each of 200 tokens take 100 KB."""


@dataclass
class TokenVectors:
    """A multi-vector model, and what it has made of passages so far."""

    model: MultiVectorEncoder
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def queries(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return token vectors by text, each (tokens, D); equal texts are encoded once."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, self.model.encode_query(distinct), strict=True)) if distinct else {}

    def passages(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return token vectors of passages by text, each (tokens, D); those seen lately are not encoded again."""
        distinct = dict.fromkeys(texts)
        found = {text: self._known.pop(text) for text in distinct if text in self._known}
        new = [text for text in distinct if text not in found]
        found |= zip(new, self.model.encode_document(new), strict=True) if new else ()
        self._known |= found
        for text in list(self._known)[:-KEPT]:
            del self._known[text]
        return found

    def scores(self, query: Tensor, passages: Sequence[Tensor]) -> list[float]:
        """Return the MaxSim of a query with each passage: over the query's tokens, the sum of the largest cosine."""
        return [round(score, 6) for score in self.model.similarity([query], list(passages))[0].tolist()]


@dataclass
class LateInteraction:
    """A retriever that orders the first ``depth`` passages of ``base`` by ``vectors`` and returns the ``k`` best.

    Only the query itself is seen. Scores that are equal to six decimals keep the order of ``base``.
    """

    base: Retriever
    vectors: TokenVectors
    k: int
    depth: int

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return the best ``k`` passages per search: one call of ``base``, and each distinct text encoded once."""
        found = self.base.retrieve([replace(s, k=max(self.depth, s.k or self.k)) for s in searches])
        query_of = self.vectors.queries([search.query for search in searches])
        passage_of = self.vectors.passages([p.content for retrieval in found for p in retrieval.passages])
        ranked = []
        for search, retrieval in zip(searches, found, strict=True):
            shown = [passage_of[passage.content] for passage in retrieval.passages]
            scores = self.vectors.scores(query_of[search.query], shown) if shown else []
            order = sorted(range(len(scores)), key=lambda place: -scores[place])[: search.k or self.k]
            best = tuple(retrieval.passages[place] for place in order)
            ranked.append(replace(retrieval, passages=best, scores=tuple(scores[place] for place in order)))
        return ranked


@lru_cache(maxsize=1)  # all arms and sources of a stage share it
def load_multi_vector(name: str, device: str | None = None) -> TokenVectors:
    """Load a multi-vector model as float32; neither code nor pickles from its folder are ever run.

    Args:
        name: a folder or hub name; saved by sentence-transformers, PyLate or Stanford's ColBERT.
        device: as torch names it; None takes a GPU where there is one.

    Raises:
        ModelError: it cannot be found or loaded, or is no multi-vector model.
    """
    folder = find_folder(name, "retriever.late_interaction")
    if not _is_multi_vector(folder):
        raise ModelError(
            f"model {name!r} has one vector a text; set retriever.late_interaction to a multi-vector model (ColBERT)"
        )
    return TokenVectors(load_safely(MultiVectorEncoder, name, folder, device))


def search_identity(index: str, model: str) -> str:
    """Return the identity of a search: that of its ``index``, and by content of the ``model`` that orders anew.

    Without such a model ("") it is that of the index, unchanged. A copy of the folder is the same model.

    Raises:
        ModelError: the model cannot be found.

    >>> search_identity("3f2a", "")
    '3f2a'
    """
    if not model:
        return index
    return fingerprint({"index": index, "model": file_hashes(find_folder(model, "retriever.late_interaction"))})


def _is_multi_vector(folder: Path) -> bool:
    """Return whether a folder says so; sentence-transformers would put random weights on top of any other."""
    settings, config = folder / "config_sentence_transformers.json", folder / "config.json"
    kind = read_json(settings).get("model_type") if settings.exists() else ""
    shapes = read_json(config).get("architectures") if config.exists() else ()
    return kind in ("MultiVectorEncoder", "ColBERT") or "HF_ColBERT" in (shapes or ())
