"""A multi-vector model (ColBERT, arXiv 2004.12832) reorders the first passages of another search.

Token vectors of a whole corpus would take a hundred times the space of one vector per passage, so those of the
passages found are computed on demand and cached.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from harr_rerankers.reranked import Reranked
from sentence_transformers import MultiVectorEncoder
from torch import Tensor

from harr.builders.retrievers import RetrieverInputs
from harr.compute import distributed
from harr.errors import ModelError
from harr.io.files import read_json
from harr.io.model_folder import find_folder, load_safely
from harr.params.faults import read_section
from harr.params.fields import PathOrName, Section
from harr_late_interaction.recent import Recent


class MultiVectorParams(Section):
    """Settings of the retriever (``settings``)."""

    model: PathOrName
    """Folder or hub name of a multi-vector model, saved by sentence-transformers, PyLate or Stanford's ColBERT."""


class MultiVector(Reranked):
    """A retriever that orders the first ``pool`` passages of ``retriever.search`` by MaxSim with the query itself.

    Raises:
        ParamsError: the settings are wrong.
        ModelError: the model cannot be found or loaded, or is not a multi-vector model.
    """

    def __init__(self, inputs: RetrieverInputs) -> None:
        params = read_section(MultiVectorParams, inputs.settings, f"settings of {type(self).__name__}")
        super().__init__(inputs.base, load_multi_vector(params.model, distributed.device()), inputs.k, inputs.pool)


class MultiVectorScores:
    """The MaxSim of queries with texts: the sum over the query's tokens of the largest cosine."""

    def __init__(self, model: MultiVectorEncoder) -> None:
        self.model, self._passages = model, Recent[Tensor](model.encode_document)

    def __call__(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """Return the scores of the texts of every query, to six decimals; equal texts are encoded once."""
        queries = list(dict.fromkeys(query for query, _ in asked))
        query_of = dict(zip(queries, self.model.encode_query(queries), strict=True)) if queries else {}
        passage_of = self._passages(text for _, texts in asked for text in texts)
        alike = (
            self.model.similarity([query_of[query]], [passage_of[text] for text in texts]) for query, texts in asked
        )
        return [[round(score, 6) for score in scores[0].tolist()] for scores in alike]


@lru_cache(maxsize=1)  # shared by all arms and sources of a stage
def load_multi_vector(name: str, device: str | None = None) -> MultiVectorScores:
    """Load a multi-vector model as float32; neither code nor pickles from its folder are ever run.

    Args:
        name: a folder or hub name.
        device: as torch names it; None takes a GPU if there is one.

    Raises:
        ModelError: it cannot be found or loaded, or is not a multi-vector model.
    """
    folder = find_folder(name, "settings.model")
    if not _is_multi_vector(folder):
        raise ModelError(f"model {name!r} has one vector a text; set settings.model to a multi-vector model (ColBERT)")
    return MultiVectorScores(load_safely(MultiVectorEncoder, name, folder, device))


def _is_multi_vector(folder: Path) -> bool:
    """Return whether a folder has such a model; sentence-transformers would put random weights on top of any other."""
    settings, config = (
        read_json(path) if (path := folder / name).exists() else {}
        for name in ("config_sentence_transformers.json", "config.json")
    )
    named = settings.get("model_type") in ("MultiVectorEncoder", "ColBERT")
    by_pylate = settings.get("similarity_fn_name") == "MaxSim"  # PyLate 1.6 names no type
    return named or by_pylate or "HF_ColBERT" in (config.get("architectures") or ())
