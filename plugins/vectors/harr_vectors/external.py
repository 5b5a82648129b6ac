"""An encoder whose vectors come from elsewhere: files of vectors, an OpenAI-compatible /v1/embeddings, or both.

It is a module of sentence-transformers, so its folder is a model like any other: used for embedding, trained over with
``retriever.learns: query_adapter``, merged, registered and served. None of its layers can be trained. The vector of a
state (style ``json``) is the sum of the vectors of its query, its last answer and its question, so that a search can
depend on what was found before.
"""

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sentence_transformers.base.modules import InputModule
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from torch.nn.functional import normalize

from harr.embed.embedding_cache import TextTable, text_hashes
from harr.embed.served import read_vectors
from harr.errors import ModelError, ParamsError
from harr.io.files import read_json, write_json
from harr.params.servers import ServerParams
from harr.services.openai_client import Service

PROBE = "What is the capital of France?"
"""Text whose vector identifies a server's model."""
MIN_COSINE = 0.99
TEXTS = 128
"""Maximum number of texts per request."""
CONCURRENCY = 8
ANSWER, QUESTION = 1.0, 0.3
"""Weights of the last answer's and the question's vectors in a state; the query's is 1."""
STATE = re.compile(r"(?:Original Question: (.*)\nHistory: (\[.*\])\n)?Query: (.*)", re.DOTALL)
MAX_ASKED = 40_000_000
"""Maximum size, in numbers, of the memory for an API's vectors."""
CONFIG, TENSORS = "external.json", "model.safetensors"


@dataclass(frozen=True)
class Api:
    """An OpenAI-compatible API: its ``model``, and the environment variables with its address and its key."""

    model: str
    url_variable: str = "OPENAI_BASE_URL"
    key_variable: str = "OPENAI_API_KEY"

    def __deepcopy__(self, memo: object) -> Self:
        """Return this object: copies of an encoder share one connection."""
        return self

    @cached_property
    def _service(self) -> Service:
        """Return the client for the address that the environment names."""
        if not (url := os.environ.get(self.url_variable, "")):
            raise ParamsError(
                f"the vectors of {self.model} come from an API; set the environment variable {self.url_variable} to its "
                "address, which usually ends in /v1"
            )
        server = ServerParams(name=self.model, urls=(url,), key_variable=self.key_variable)
        return Service("encoder", server=server, model=self.model)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, (n, D); several requests run concurrently.

        Raises:
            ParamsError: the variable with the address is not set, or the API refuses or answers with something else.
            ServiceUnavailable: it does not answer before the deadline.
        """
        service = self._service

        def ask(batch: Sequence[str]) -> list[NDArray[np.float32]]:
            # Lists of numbers: some servers return these whatever is requested.
            reply = service.ask(
                lambda client: client.embeddings.create(model=self.model, input=list(batch), encoding_format="float")
            )
            try:
                vectors = read_vectors(reply)
                return [vectors[number] for number in range(len(batch))]
            except (AttributeError, TypeError, ValueError, OverflowError, KeyError):
                raise ParamsError(
                    f"{service.where}: the answer does not hold {len(batch)} embeddings; {self.url_variable} must be the "
                    "address of an embedding model"
                ) from None

        batches = [texts[start : start + TEXTS] for start in range(0, len(texts), TEXTS)]
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="encoder") as pool:
            return unit([vector for rows in pool.map(ask, batches) for vector in rows], service.where)


def unit(vectors: Sequence[Any], where: str) -> NDArray[np.float32]:
    """Return vectors of length 1, (n, D).

    >>> unit([[3, 4]], "here").tolist()
    [[0.6000000238418579, 0.800000011920929]]

    Raises:
        ModelError: they have several widths, or are zero or not finite; ``where`` names their source.
    """
    if not len(vectors):
        return np.empty((0, 0), dtype=np.float32)
    if len(widths := {len(vector) for vector in vectors}) > 1:
        raise ModelError(f"{where}: vectors of several widths ({', '.join(map(str, sorted(widths)))}); one is expected")
    vectors_ND = np.asarray(vectors, dtype=np.float32)
    norms_N1 = np.linalg.norm(vectors_ND, axis=-1, keepdims=True)
    if bad := np.flatnonzero(~(np.isfinite(norms_N1) & (norms_N1 > 0))).tolist():
        raise ModelError(f"{where}: vector {bad[0]} is zero or not finite; leave it out, or make it again")
    unit_ND: NDArray[np.float32] = vectors_ND / norms_N1
    return unit_ND


def agree(one_1D: NDArray[np.float32], other_1D: NDArray[np.float32]) -> bool:
    """Return whether two vectors of a text, (1, D), can be from one model."""
    return one_1D.shape == other_1D.shape and float((one_1D * other_1D).sum()) >= MIN_COSINE


def parts_of(text: str) -> dict[str, float]:
    """Return the texts, with weights, whose vectors add up to that of a state; any other text is its own only part.

    >>> from harr.rag.policies.state import state
    >>> parts_of(state("Who founded the firm where Ada works?", [("Where does Ada work?", "Acme")], "Who founded it?"))
    {'Who founded it?': 1.0, 'Acme': 1.0, 'Who founded the firm where Ada works?': 0.3}
    >>> parts_of("Acme: A firm in Ashford.")
    {'Acme: A firm in Ashford.': 1.0}
    """
    if not (state := STATE.fullmatch(text)):
        return {text: 1.0}
    question, history, query = state.groups()
    try:
        last = next((hop["answer"] for hop in reversed(json.loads(history or "[]")) if hop["answer"]), "")
    except (ValueError, KeyError, TypeError):  # only looks like a state
        return {text: 1.0}
    weights = {query: 1.0}
    for part, weight in ((last, ANSWER), (question, QUESTION)):
        if part:
            weights[part] = weights.get(part, 0.0) + weight
    return weights


class External(InputModule):
    """Vectors by text: from a table or, for other texts, from an API.

    Attributes:
        table: the rows of texts with a vector.
        vectors_ND: unit vectors of the table.
        api: None if only the texts of the table have vectors.
        probe_D: the API's vector of ``PROBE``, or the table's first.
        samples: texts that have a vector.
    """

    config_file_name = CONFIG

    def __init__(
        self,
        hashes_N2: NDArray[np.uint64],
        vectors_ND: NDArray[np.float32],
        probe_D: NDArray[np.float32],
        api: Api | None,
        samples: Sequence[str],
    ) -> None:
        """Store the table (:func:`harr.embed.embedding_cache.text_hashes`), which may be empty, and the API."""
        super().__init__()
        self.hashes_N2, self.vectors_ND, self.probe_D = hashes_N2, vectors_ND, probe_D
        self.api, self.samples = api, samples
        self.table = TextTable(hashes_N2)
        self.tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
        self.tokenizer.pre_tokenizer = WhitespaceSplit()
        self.register_buffer("format", torch.empty(0), persistent=False)  # follows the model's number format and device
        self._is_checked = False
        self._asked: dict[str, NDArray[np.float32]] = {}

    @property
    def max_seq_length(self) -> float:
        """Return infinity: no text is too long."""
        return float("inf")

    def get_embedding_dimension(self) -> int:
        """Return the width of a vector."""
        return len(self.probe_D)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Return the ``weights_NT`` of the ``texts`` that make up the inputs, and what is ``sent`` to an API for each
        text: with the prompt, cut to the words that are read."""
        known = self.table.rows(text_hashes(inputs)) >= 0
        parts = [{text: 1.0} if is_known else parts_of(text) for text, is_known in zip(inputs, known, strict=True)]
        row_of = {text: row for row, text in enumerate(dict.fromkeys(text for part in parts for text in part))}
        weights_NT = np.zeros((len(parts), len(row_of)), dtype=np.float32)  # not a tensor, which would go to the GPU
        for number, part in enumerate(parts):
            weights_NT[number, [row_of[text] for text in part]] = list(part.values())
        prompted = [(prompt or "") + text for text in row_of]
        words = self.tokenizer.encode_batch(prompted, add_special_tokens=False)
        sent = [
            text[: kept.offsets[-1][1]] if kept.overflowing else text
            for text, kept in zip(prompted, words, strict=True)
        ]
        return {"weights_NT": weights_NT, "texts": list(row_of), "sent": sent}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Tensor]:
        """Return the unit vectors of the inputs as ``sentence_embedding``, (n, D).

        Raises:
            ModelError: a text has no vector and there is no API, or the API now has another model.
        """
        texts, sent = features["texts"], features["sent"]
        vectors_TD = np.empty((len(texts), len(self.probe_D)), dtype=np.float32)
        rows_T = self.table.rows(text_hashes(texts))
        vectors_TD[rows_T >= 0] = self.vectors_ND[rows_T[rows_T >= 0]]
        if (missing := np.flatnonzero(rows_T < 0)).size:
            vectors_TD[missing] = self._ask([sent[row] for row in missing])
        vectors_ND = normalize(torch.from_numpy(features.pop("weights_NT") @ vectors_TD), dim=-1)
        features["sentence_embedding"] = vectors_ND.to(self.format)
        return features

    def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the API's vectors; its model is compared once with that of the table or of earlier use."""
        if self.api is None:
            raise ModelError(
                f"the text {texts[0][:60]!r} has no vector in the files, and no API was named for new texts; make the encoder "
                "again by `harr wrap-vectors ... --model NAME`, or with its vector"
            )
        if not self._is_checked:
            if not agree(self.api.embed(self.samples[:1]), self.probe_D[None]):
                raise ModelError(
                    f"{self.api.model} at {self.api.url_variable} gives another vector than before; name the API that "
                    "the folder was made with, or make it again by `harr wrap-vectors`"
                )
            self._is_checked = True
        if len(self._asked) * len(self.probe_D) > MAX_ASKED:
            self._asked.clear()
        if new := [text for text in dict.fromkeys(texts) if text not in self._asked]:
            self._asked.update(zip(new, self.api.embed(new), strict=True))
        return np.stack([self._asked[text] for text in texts])

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write table and probe as safetensors, and a file that says where other vectors come from."""
        tensors: dict[str, NDArray[Any]] = {"hashes": self.hashes_N2, "vectors": self.vectors_ND, "probe": self.probe_D}
        save_file(tensors, Path(output_path) / TENSORS)
        api = None if self.api is None else asdict(self.api)
        write_json(Path(output_path) / CONFIG, {"api": api, "samples": list(self.samples)})

    @classmethod
    def load(cls, model_name_or_path: str, *_: Any, **__: Any) -> Self:
        """Open what :meth:`save` wrote."""
        folder = Path(model_name_or_path)
        tensors, config = load_file(folder / TENSORS), read_json(folder / CONFIG)
        api = None if config["api"] is None else Api(**config["api"])
        return cls(tensors["hashes"], tensors["vectors"], tensors["probe"], api, config["samples"])
