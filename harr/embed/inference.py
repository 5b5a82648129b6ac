"""An inference-only encoder: BERT without a library's layers between its matrix products.

For a few short texts a library's overhead, such as repacking weights, costs as much as the products. Only BERT
with mean pooling is computed this way, with or without a linear map of its vector (Dense).
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Dense
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

from harr.compute.packed import Packed
from harr.embed.encoder import Encoder

STEP = 2
"""A pass is padded to a multiple of this many tokens: each size needs its own kernel, but padding costs time."""
LEAST_COSINE = 0.999
"""Minimum cosine with the library's vectors on the probes; bfloat16 reaches 0.9999."""
STACK = ("Transformer", "Pooling", "Normalize")
PROBES = ("Who founded Acme?", "x", "Where was\nthe Founder of Acme born? " * 20, "Ähre, 日本, \x00 [SEP] and </s>")


class InferenceEncoder(Encoder):
    """An :class:`Encoder` on a CPU that computes the same vectors, without gradients."""

    def __init__(self, encoder: Encoder, dtype: torch.dtype) -> None:
        """Take an encoder for which :func:`is_bert` holds; ``dtype`` is the number format of the products."""
        self.__dict__ |= vars(encoder)
        [transformer, *_] = encoder.model
        self._bert = _Bert(transformer.auto_model, dtype)
        self._map = next((module.linear.weight.detach() for module in encoder.model if type(module) is Dense), None)

    def forward(
        self, texts: Sequence[str], *, prompt: str = "", max_tokens: int | None = None, multiple: int = 0
    ) -> Tensor:
        """Return unit vectors as :meth:`Encoder.forward` does, without gradient."""
        if not texts:
            return torch.empty((0, self.width))
        prompted = [prompt + text for text in texts]
        ids = self._tokenizer(prompted, truncation=True, max_length=self._check_length(max_tokens or self.max_tokens))
        with torch.inference_mode():
            vectors_BD = self._bert(ids["input_ids"], multiple or STEP)
            return vectors_BD if self._map is None else normalize(vectors_BD @ self._map.T, dim=-1)


class _Bert:
    """A BERT's layers, for texts of similar length."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self._heads, embeddings = model.config.num_attention_heads, model.embeddings
        self._words, self._places, self._first = (
            embeddings.word_embeddings.weight.detach().to(dtype),
            embeddings.position_embeddings.weight.detach().to(dtype),
            embeddings.token_type_embeddings.weight.detach()[0].to(dtype),
        )
        self._norm = _norm(embeddings.LayerNorm, dtype)
        self._layers = [_Layer(layer, dtype) for layer in model.encoder.layer]

    def __call__(self, texts: Sequence[Sequence[int]], multiple: int) -> Tensor:
        lengths_B = torch.tensor([len(text) for text in texts])
        longest = min(-(-int(lengths_B.max()) // multiple) * multiple, len(self._places))
        ids_BT = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
        read_BT = torch.arange(longest) < lengths_B[:, None]
        mask_B11T = torch.zeros(ids_BT.shape, dtype=self._words.dtype).masked_fill_(~read_BT, -torch.inf)[:, None, None]
        state_BTH = self._norm(self._words[ids_BT] + self._places[:longest] + self._first)
        for layer in self._layers:
            state_BTH = layer(state_BTH, mask_B11T, self._heads)
        return normalize((state_BTH.float() * read_BT[..., None]).sum(1), dim=-1)


class _Layer:
    """One layer of BERT."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        attention, out = layer.attention.self, layer.attention.output
        self._qkv = _pack([attention.query, attention.key, attention.value], dtype)
        self._out, self._out_norm = _pack([out.dense], dtype), _norm(out.LayerNorm, dtype)
        self._up, self._down = _pack([layer.intermediate.dense], dtype), _pack([layer.output.dense], dtype)
        self._down_norm = _norm(layer.output.LayerNorm, dtype)

    def __call__(self, state_BTH: Tensor, mask_B11T: Tensor, heads: int) -> Tensor:
        qkv_BT3HD = self._qkv(state_BTH).view(*state_BTH.shape[:2], 3, heads, -1)
        query, key, value = qkv_BT3HD.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask_B11T)
        state_BTH = self._out_norm(state_BTH + self._out(attended.transpose(1, 2).flatten(2)))
        return self._down_norm(state_BTH + self._down(self._up(state_BTH, gelu=True)))


def _pack(layers: Sequence[Any], dtype: torch.dtype) -> Packed:
    weight_OI = torch.cat([layer.weight.detach() for layer in layers])
    return Packed(weight_OI.to(dtype), torch.cat([layer.bias.detach() for layer in layers]).to(dtype))


def _norm(norm: torch.nn.LayerNorm, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    weight, bias, shape = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype), norm.normalized_shape
    return lambda x: torch.nn.functional.layer_norm(x, list(shape), weight, bias, norm.eps)


def for_inference(encoder: Encoder, dtype: torch.dtype) -> Encoder:
    """Return an encoder that computes in ``dtype``: an :class:`InferenceEncoder` if that gives the same vectors."""
    if is_bert(encoder):
        inference = InferenceEncoder(encoder, dtype)
        cosine_N = (inference.encode(PROBES) * encoder.encode(PROBES)).sum(-1)
        if cosine_N.min() > LEAST_COSINE:
            return inference
    return encoder.bfloat16() if dtype == torch.bfloat16 else encoder


def is_bert(encoder: Encoder) -> bool:
    """Return whether an encoder is BERT with mean pooling on a CPU."""
    modules: list[Any] = list(encoder.model)
    model: Any = getattr(modules[0], "auto_model", None)
    names = [type(module).__name__ for module in modules if type(module) is not Dense]
    if type(model).__name__ != "BertModel" or names not in ([*STACK], [*STACK[:2]]):
        return False
    pooling = modules[1].get_config_dict()
    mean_pooled = pooling.get("pooling_mode") == "mean" and pooling.get("include_prompt", True)
    on_cpu = encoder.model.device.type == "cpu" and encoder.normalize
    return bool(on_cpu and mean_pooled and model.config.hidden_act == "gelu")


def faster_dtype(encoder: Encoder) -> torch.dtype:
    """Return bfloat16 if it takes less than 4/5 of float32's time on the probes, otherwise float32."""
    if not encoder.has_weights:
        return torch.float32
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        candidate = for_inference(encoder, dtype)
        seconds[dtype] = min(_measure_seconds(candidate) for _ in range(5))
    return torch.bfloat16 if seconds[torch.bfloat16] < 0.8 * seconds[torch.float32] else torch.float32


def _measure_seconds(encoder: Encoder) -> float:
    started = time.perf_counter()
    encoder.encode(PROBES)
    return time.perf_counter() - started
