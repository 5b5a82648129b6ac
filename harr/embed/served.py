"""Passage vectors from an OpenAI-compatible /v1/embeddings endpoint, such as vLLM's pooling runner."""

import base64
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harr.embed.encoder import Encoder
from harr.errors import ModelError, ParamsError
from harr.params.servers import ServerParams
from harr.services.openai_client import Service

MIN_COSINE = 0.99


class ServedEncoder:
    """The model of ``encoder`` behind ``server``; it receives token ids, up to ``concurrency`` batches at a time.

    Token ids come from ``encoder``: prompt, special tokens and truncation are the same on both sides, whatever the
    server's own tokenizer would do. Failed requests are retried by :class:`harr.services.openai_client.Service`.
    """

    def __init__(self, encoder: Encoder, server: ServerParams) -> None:
        self._encoder = encoder
        self._server = server
        self._service = Service("encoder", server=server, model=encoder.name)

    def check(self, texts: Sequence[str]) -> None:
        """Compare the server with the local encoder on a few passages.

        Raises:
            ModelError: a cosine is below ``MIN_COSINE``, or the vectors have another width.
        """
        prompt = self._encoder.passage_prompt
        ours_ND, theirs_ND = self._encoder.encode(texts, prompt=prompt), self.encode(texts, prompt=prompt)
        cosine = float((ours_ND * theirs_ND).sum(-1).min())
        if not cosine >= MIN_COSINE:
            raise ModelError(
                f"{self._service.where} does not serve {self._encoder.name} as it is used here: cosine {cosine:.3f} "
                f"between the two on a passage, at least {MIN_COSINE} is wanted; check its model, pooling and prompt"
            )

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        batch_size: int = 32,
        on_batch: Callable[[int], object] | None = None,
    ) -> NDArray[np.float32]:
        """Return unit vectors of ``texts``, shape (n, D), in their order; arguments as for :meth:`Encoder.encode`.

        The first failure that persists after retries ends the call; requests not yet sent are dropped.

        Raises:
            ServiceUnavailable: no answer, or only 429 and 5xx answers, until the deadline.
            ParamsError: the server refuses a request, or does not answer with one vector per text.
            ModelError: the vectors have another width than the encoder's.
        """
        starts = range(0, len(texts), batch_size)
        # Tokenized here, while earlier batches are in flight: tokenizers are not thread-safe.
        batches = (self._encoder.token_ids(texts[start : start + batch_size], prompt=prompt) for start in starts)
        vectors_ND = np.empty((len(texts), self._encoder.width), dtype=np.float32)
        with ThreadPoolExecutor(self._server.concurrency, thread_name_prefix="encoder") as pool:
            for start, batch_BD in zip(starts, pool.map(self._embed, batches), strict=True):
                vectors_ND[start : start + len(batch_BD)] = batch_BD
                if on_batch is not None:
                    on_batch(len(batch_BD))
        return vectors_ND

    def _embed(self, batch: list[list[int]]) -> NDArray[np.float32]:
        """Send one request and return its unit vectors, shape (B, D)."""
        name, where = self._encoder.name, self._service.where
        reply = self._service.ask(
            lambda client: client.embeddings.create(model=name, input=batch, encoding_format="base64")
        )
        try:
            by_index = read_vectors(reply)
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise ParamsError(
                f"{where}: the answer holds no embeddings; {self._server.place}.urls must be OpenAI-compatible addresses "
                "of an embedding model, usually ending in /v1"
            ) from None
        if set(by_index) != set(range(len(batch))) or len(reply.data) != len(batch):
            raise ParamsError(
                f"{where}: {len(reply.data)} vectors for {len(batch)} passages, so they cannot be told apart; "
                "look at the server's log, or use another server"
            )
        widths = {len(vector) for vector in by_index.values()}
        if widths != {self._encoder.width}:
            widths_text = ", ".join(map(str, sorted(widths)))
            raise ModelError(
                f"{where}: vectors of width {widths_text}, but {name} has width {self._encoder.width}; serve {name}"
            )
        vectors_BD = np.stack([by_index[place] for place in range(len(batch))])
        norms_B1 = np.linalg.norm(vectors_BD, axis=-1, keepdims=True)
        if not (np.isfinite(norms_B1) & (norms_B1 > 0)).all():
            raise ParamsError(f"{where}: a vector is zero or not finite; look at the server's log")
        return vectors_BD / norms_B1


def read_vectors(reply: Any) -> dict[int, NDArray[np.float32]]:
    """Return the vectors of an answer by their texts' places in the request.

    Raises:
        AttributeError, TypeError, ValueError, OverflowError: the answer has something else.
    """
    return {row.index: _floats(row.embedding) for row in reply.data}


def _floats(embedding: str | list[float]) -> NDArray[np.float32]:
    """Return a vector from base64, as requested, or from a list, which some servers send instead."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype=np.float32)
    return np.asarray(embedding, dtype=np.float32).ravel()
