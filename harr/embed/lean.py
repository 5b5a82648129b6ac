"""An encoder that only answers: BERT without padding and without the layers of a library between its products.

A few short texts through MiniLM cost the library as much for its own calls, for laying out weights again and for
padding as for the products. Whatever is no BERT with the mean of its tokens keeps the ordinary way.
"""

import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

from harr.compute.packed import Packed
from harr.embed.encoder import Encoder

TOKENS = 256
"""Number of tokens in a pass; every token is compared with all of the pass, also where it belongs to another text."""
STEP = 16
"""Number of tokens that those of a pass are filled up to a multiple of: a kernel is made for every size."""
LEAST_COSINE = 0.999
"""Least cosine with the ordinary way, of the texts that are tried; bfloat16 has 0.9999."""
STACK = ("Transformer", "Pooling", "Normalize")
TRIED = ("Who founded Acme?", "x", "Where was\nthe Founder of Acme born? " * 20, "Ähre, 日本, \x00 [SEP] and </s>")


class LeanEncoder(Encoder):
    """An :class:`Encoder` for states on a CPU; it tells the same vectors, and learns nothing."""

    def __init__(self, encoder: Encoder, dtype: torch.dtype) -> None:
        """Take an encoder of which :func:`is_bert` says so; ``dtype``: what is computed in."""
        self.__dict__ |= vars(encoder)
        [transformer, *_] = encoder.model
        self._bert = _Bert(transformer.auto_model, dtype)

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        batch_size: int = 32,
        max_tokens: int | None = None,
        on_batch: Callable[[int], object] | None = None,
        alone: bool = False,
    ) -> NDArray[np.float32]:
        """Return unit vectors as :meth:`Encoder.encode` does; batches follow from the lengths alone."""
        vectors_ND = np.empty((len(texts), self.width), dtype=np.float32)
        if not texts:
            return vectors_ND
        read = [prompt + text for text in texts]
        ids = self._tokenizer(read, truncation=True, max_length=max_tokens or self.max_tokens)["input_ids"]
        start = count = 0
        for end, own in enumerate(ids, 1):
            count += len(own)
            if end == len(ids) or count + len(ids[end]) > TOKENS:
                with torch.inference_mode():
                    vectors_ND[start:end] = self._bert(ids[start:end]).numpy()
                start, count = end, 0
        return vectors_ND


class _Bert:
    """The layers of a BERT for some texts that stand one after the other, each of which sees itself alone."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self._heads, own = model.config.num_attention_heads, model.embeddings
        self._words, self._places, self._first = (
            own.word_embeddings.weight.detach().to(dtype),
            own.position_embeddings.weight.detach().to(dtype),
            own.token_type_embeddings.weight.detach()[0].to(dtype),
        )
        self._norm = _norm(own.LayerNorm, dtype)
        self._layers = [_Layer(layer, dtype) for layer in model.encoder.layer]

    def __call__(self, texts: Sequence[Sequence[int]]) -> Tensor:
        lengths = [len(text) for text in texts]
        lengths.append(-sum(lengths) % STEP)
        of_T = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        ids_T = torch.tensor([*chain.from_iterable(texts), *[0] * lengths[-1]])
        place_T = torch.cat([torch.arange(length) for length in lengths])
        mask_TT = torch.zeros(len(of_T), len(of_T), dtype=self._words.dtype)
        mask_TT.masked_fill_(of_T[:, None] != of_T, -torch.inf)
        state_TH = self._norm(self._words[ids_T] + self._places[place_T] + self._first)
        for layer in self._layers:
            state_TH = layer(state_TH, mask_TT, self._heads)
        sums_BH = torch.zeros(len(lengths), state_TH.shape[-1]).index_add_(0, of_T, state_TH.float())
        return normalize(sums_BH[:-1], dim=-1)


class _Layer:
    """One layer of BERT."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        own, out = layer.attention.self, layer.attention.output
        self._asked = _packed([own.query, own.key, own.value], dtype)
        self._out, self._out_norm = _packed([out.dense], dtype), _norm(out.LayerNorm, dtype)
        self._up, self._down = _packed([layer.intermediate.dense], dtype), _packed([layer.output.dense], dtype)
        self._down_norm = _norm(layer.output.LayerNorm, dtype)

    def __call__(self, state_TH: Tensor, mask_TT: Tensor, heads: int) -> Tensor:
        query, key, value = self._asked(state_TH).view(1, len(state_TH), 3, heads, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(query, key, value, attn_mask=mask_TT[None, None])
        state_TH = self._out_norm(state_TH + self._out(seen[0].transpose(0, 1).flatten(1)))
        return self._down_norm(state_TH + self._down(self._up(state_TH, gelu=True)))


def _packed(layers: Sequence[Any], dtype: torch.dtype) -> Packed:
    weight_OI = torch.cat([layer.weight.detach() for layer in layers])
    return Packed(weight_OI.to(dtype), torch.cat([layer.bias.detach() for layer in layers]).to(dtype))


def _norm(norm: torch.nn.LayerNorm, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    weight, bias, shape = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype), norm.normalized_shape
    return lambda x: torch.nn.functional.layer_norm(x, list(shape), weight, bias, norm.eps)


def lean(encoder: Encoder, dtype: torch.dtype) -> Encoder:
    """Return what encodes states as ``encoder`` does, computed in ``dtype``: by :class:`LeanEncoder` where that can."""
    if is_bert(encoder):
        found = LeanEncoder(encoder, dtype)
        cosine_N = (found.encode(TRIED) * encoder.encode(TRIED)).sum(-1)
        if cosine_N.min() > LEAST_COSINE:
            return found
    return encoder.bfloat16() if dtype == torch.bfloat16 else encoder


def is_bert(encoder: Encoder) -> bool:
    """Return whether an encoder is BERT on a CPU, of which the mean of all tokens is read."""
    modules: list[Any] = list(encoder.model)
    model: Any = getattr(modules[0], "auto_model", None)
    names = [type(module).__name__ for module in modules]
    if type(model).__name__ != "BertModel" or names not in ([*STACK], [*STACK[:2]]):
        return False
    pooling = modules[1].get_config_dict()
    plain = pooling.get("pooling_mode") == "mean" and pooling.get("include_prompt", True)
    on_cpu = encoder.model.device.type == "cpu" and encoder.projection is None and encoder.normalize
    return bool(on_cpu and plain and model.config.hidden_act == "gelu")


def faster_dtype(encoder: Encoder) -> torch.dtype:
    """Return bfloat16 where the processor encodes a few states in it in less than 4/5 of the time, else float32."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        candidate = lean(encoder, dtype)
        seconds[dtype] = min(_seconds(candidate) for _ in range(5))
    return torch.bfloat16 if seconds[torch.bfloat16] < 0.8 * seconds[torch.float32] else torch.float32


def _seconds(encoder: Encoder) -> float:
    started = time.perf_counter()
    encoder.encode(TRIED)
    return time.perf_counter() - started
