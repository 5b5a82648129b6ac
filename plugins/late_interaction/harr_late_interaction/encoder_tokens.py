"""The index's encoder compares a query with a passage by their vectors, and by those of their tokens.

A token's vector is the encoder's last hidden state on random axes, the same for every text and corpus; those of a
passage's first tokens are kept in int8. The query is read as in a search by vector. The score is half the cosine of
both vectors and half MaxSim, whose mean over the tokens of a query is between -1 and 1 as a cosine is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from harr_rerankers.reranked import Reranked
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from harr.builders.retrievers import RetrieverInputs
from harr.compute.batching import auto_batch
from harr.embed.encoder import Encoder
from harr.errors import ModelError, ParamsError
from harr.params.faults import read_section
from harr.params.fields import Section
from harr.types import Retrieval, Search
from harr_late_interaction.recent import Recent

LARGEST = 127
"""Factor of a passage's token vectors before they are rounded to int8."""
ROOM = 10_240
"""Maximum number of bytes for the token vectors of a passage."""
BATCH = 32
"""Number of texts encoded together; fewer if a GPU's memory is full."""


class EncoderTokensParams(Section):
    """Settings of the retriever (``settings``)."""

    width: int = Field(128, ge=1, le=1024)
    """Length of a token's vector; the first 10,240 / ``width`` tokens of a passage are kept."""


class EncoderTokens(Reranked):
    """A retriever that orders the first ``pool`` passages of ``retriever.search`` by vectors and tokens of the query.

    Raises:
        ParamsError: the settings are wrong, or queries are read by another encoder than the passages'.
        ModelError: the encoder has no hidden states, or they are narrower than ``width``.
    """

    def __init__(self, inputs: RetrieverInputs) -> None:
        name = type(self).__name__
        params = read_section(EncoderTokensParams, inputs.settings, f"settings of {name}")
        if inputs.vectors.manifest.get("encoder", inputs.encoder.identity) != inputs.encoder.identity:
            raise ParamsError(f"{name} compares tokens of encoder.model alone; leave retriever.encoder out")
        super().__init__(inputs.base, TokenScores(inputs.encoder, params.width), inputs.k, inputs.pool)

    def text(self, search: Search, retrieval: Retrieval) -> str:
        """Return the query as the encoder read it if it searched for the pool, else as it is."""
        return retrieval.state or search.query


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text: its vector, and those of its tokens (L, W), of length 1."""

    vector_D: Tensor
    tokens_LW: Tensor


class TokenScores:
    """Half the cosine of query and text, half their MaxSim."""

    def __init__(self, encoder: Encoder, width: int) -> None:
        """Take an encoder and the length of a token's vector.

        Raises:
            ModelError: the model has no hidden states, or they are narrower.
        """
        hidden = int(getattr(encoder.model.config, "hidden_size", 0))
        if width > hidden:
            what = f"has hidden states of {hidden} numbers" if hidden else "is a table of token vectors"
            raise ModelError(f"{encoder.name} {what}, of which settings.width {width} cannot be kept; lower it")
        axes_HW = np.linalg.qr(np.random.default_rng(0).standard_normal((hidden, width)))[0]
        self._encoder, self._axes_HW = encoder, torch.from_numpy(axes_HW.astype(np.float32))
        self._most = ROOM // width
        self._passages = Recent[Encoded](self._encode_passages)

    def __call__(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """Return the scores of the texts of every query, to six decimals; equal texts are encoded once."""
        queries = list(dict.fromkeys(query for query, _ in asked))
        query_of = dict(zip(queries, self._encode(queries, self._encoder.plain_prompt), strict=True))
        passage_of = self._passages(text for _, texts in asked for text in texts)
        return [self._scores(query_of[query], [passage_of[text] for text in texts]) for query, texts in asked]

    def _scores(self, query: Encoded, passages: Sequence[Encoded]) -> list[float]:
        cosines_R = torch.stack([passage.vector_D for passage in passages]) @ query.vector_D
        tokens_RTW = pad_sequence([passage.tokens_LW for passage in passages], batch_first=True)
        return [round(score, 6) for score in ((cosines_R + mean_of_best(query.tokens_LW, tokens_RTW)) / 2).tolist()]

    def _encode_passages(self, texts: Sequence[str]) -> list[Encoded]:
        return [
            Encoded(one.vector_D, (one.tokens_LW[: self._most] * LARGEST).round().to(torch.int8))
            for one in self._encode(texts, self._encoder.passage_prompt)
        ]

    def _encode(self, texts: Sequence[str], prompt: str) -> list[Encoded]:
        """Return texts with all their tokens, including those of prompt and model."""

        def run(rows: Sequence[int]) -> list[Encoded]:
            outputs = self._encoder.outputs([texts[row] for row in rows], prompt=prompt)
            vectors_BD = normalize(outputs["sentence_embedding"].float(), dim=-1).cpu()
            states_BTH = outputs["token_embeddings"].float()
            tokens_BTW = normalize(states_BTH @ self._axes_HW.to(states_BTH), dim=-1).cpu()
            masks_BT = outputs["attention_mask"].bool().cpu()
            return [
                Encoded(*one) for one in zip(vectors_BD, map(Tensor.__getitem__, tokens_BTW, masks_BT), strict=True)
            ]

        longest_first = np.argsort(-self._encoder.token_counts(texts, prompt=prompt), kind="stable").tolist()
        encoded: dict[int, Encoded] = {}
        with torch.no_grad():
            for rows, batch in auto_batch(longest_first, BATCH, run, self._encoder.name):
                encoded.update(zip(rows, batch, strict=True))
        return [encoded[row] for row in range(len(texts))]


def mean_of_best(query_LW: Tensor, passages_RTW: Tensor) -> Tensor:
    """Return the MaxSim of passages with a query, (R,): the mean over its tokens of the largest inner product.

    Passages are in 127ths; zero token vectors are padding.

    >>> query, passages = torch.eye(2), torch.tensor([[[127, 0], [0, 0]], [[0, 127], [127, 0]]], dtype=torch.int8)
    >>> mean_of_best(query, passages)
    tensor([0.5000, 1.0000])
    """
    alike_RTL = (passages_RTW.to(query_LW) / LARGEST) @ query_LW.T
    return alike_RTL.masked_fill(~passages_RTW.any(-1)[..., None], -torch.inf).amax(1).mean(-1)
