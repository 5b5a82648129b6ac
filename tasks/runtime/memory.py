"""Estimate what stages embed, train and evaluate need, before anything is computed: memory, and the time of a GPU.

What grows with a recipe is counted from its parameters and its questions; what does not (libraries, tracker, report)
was measured once. docs/performance.md compares the sums with what stages took, and what lies on a GPU with a step of
torch's fake tensors (tests/flows/test_memory.py).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from huggingface_hub import snapshot_download

from harr.errors import HarrError
from harr.io.model_folder import PACKAGED, find_folder, language_model_path
from harr.params import Params
from harr.params.loop import OptimizerParams
from harr.types import Question

CONTEXT = 0.6e9
"""Bytes that CUDA and the libraries' kernels take on a GPU."""
BASE = {"embed": 0.85e9, "train": 0.9e9, "evaluate": 1.2e9}
"""Bytes that a stage holds of libraries, data checks and tracking."""
KEPT = 2.0
"""Times the activations of a pass that a process holds: the heap keeps room of passes of other lengths."""
ACTIVATIONS = {"bfloat16": (34.0, 23.0), "float32": (22.0, 46.0)}
"""Bytes that a layer keeps for the backward pass, a token and a number of its width, and a number of its queries'."""
WORDS = 100.0
"""Words of a passage of a corpus that is not read beforehand: wiki18's."""
MILVUS_LITE = 3.0
"""Times the vectors that Milvus Lite holds (a million of width 128: docs/scale.md)."""
TOKENS_A_WORD = 1.4
SHARED = 0.3
"""Share of the rollouts of a question whose later states differ."""
PROMPT = 400.0
"""Tokens of an agent's instructions."""
GPU_RATE = 0.4 * 990e12
"""Operations a second of a GPU: two fifths of the peak of an H100 in bfloat16."""
WEIGHT = {"none": 2.0, "nf4": 0.5625}
"""Bytes of a frozen weight of a language model's layers; of nf4 in blocks of 64 with a scale in float32."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An encoder: number of ``weights``, ``width``, ``inner`` width and number of its ``layers``; of attention the width
    of ``queries`` and of ``keys``; and whether it is ``gated``."""

    weights: int
    width: int
    inner: int
    layers: int
    queries: int
    keys: int
    gated: bool = False

    @property
    def products(self) -> list[tuple[int, int]]:
        """Return both sides of the linear layers of a layer."""
        attention = 2 * [(self.width, self.queries)] + 2 * [(self.width, self.keys)]
        return attention + (2 + self.gated) * [(self.width, self.inner)]

    @property
    def linear(self) -> int:
        """Return the weights of the linear layers, by which each token is multiplied."""
        return self.layers * sum(one * other for one, other in self.products)

    def lora(self, rank: int) -> int:
        """Return the weights of an adapter on all linear layers.

        >>> Shape(weights=22_713_728, width=384, inner=1536, layers=6, queries=384, keys=384).lora(32)
        1327104
        """
        return self.layers * rank * sum(one + other for one, other in self.products)


def shape_of(model: str) -> Shape | None:
    """Return the shape of a model that is on this machine; None of one that is not, or names no layers."""
    folder = language_model_path(model)
    try:
        if model == PACKAGED or folder.is_dir():
            folder = find_folder(str(folder))
        else:
            name = model if "/" in model else f"sentence-transformers/{model}"
            folder = Path(snapshot_download(name, local_files_only=True))
        config = next(
            values
            for path in sorted(folder.rglob("config.json"))
            if "hidden_size" in (values := json.loads(path.read_text(encoding="utf-8")))
        )
        weights = sum(map(_weights, folder.rglob("*.safetensors")))
        heads, width = config["num_attention_heads"], config["hidden_size"]
        queries = heads * config.get("head_dim", width // heads)
        keys = queries // heads * config.get("num_key_value_heads", heads)
        inner, gated = config["intermediate_size"], config["hidden_act"] == "silu"
        return Shape(weights, width, inner, config["num_hidden_layers"], queries, keys, gated)
    except (HarrError, OSError, ValueError, KeyError, TypeError, StopIteration):
        return None


def shape_of_agent(params: Params) -> Shape | None:
    """Return the shape of the language model that an agent's training trains; None of another method, and where it is
    unknown."""
    name = getattr(params.generator, "model", "") if params.train.method == "agent" else ""
    return shape_of(name) if name else None


def _weights(path: Path) -> int:
    """Return the number of weights in a file of safetensors, by its head."""
    with path.open("rb") as file:
        head: Mapping[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in head.items() if name != "__metadata__")


def estimate_memory(
    params: Params, shape: Shape, questions: Sequence[Question], *, passages: int, words: float
) -> dict[str, float]:
    """Return the bytes that stages will hold at most; of a language model that learns, those of embed alone.

    Args:
        params: the recipe.
        shape: of its encoder.
        questions: that are learnt from.
        passages: number of the corpus; 0 where it is not known.
        words: of a passage, on average.
    """
    half = params.embed.dtype != "float32"
    text = _passage_tokens(params, words)
    rows = min(passages or params.embed.shard_size, params.embed.shard_size)
    shard = rows * (4 * shape.width + 8 * words)
    reading = 8 * (shape.inner + 4 * shape.width)  # a token of a pass without gradient, in two layers
    estimate = {"embed": BASE["embed"] + (6 if half else 4) * shape.weights + shard}
    estimate["embed"] += params.embed.batch_size * text * reading
    if params.language_model_learns:
        return estimate
    index = 0.0 if params.index.uri else MILVUS_LITE * 4 * passages * shape.width
    estimate["train"] = BASE["train"] + index + _towers(params) * _learning(params, shape)
    estimate["train"] += KEPT * _pass(params, shape, questions, text)
    estimate["evaluate"] = BASE["evaluate"] + index + 2 * _towers(params) * 4 * shape.weights  # base, and a trained arm
    return estimate


def gpu_shortage(params: Params, questions: Sequence[Question], words: float) -> str:
    """Return a line about training that needs more memory than the GPU here has; "" where it fits or nobody knows."""
    import torch

    shape = shape_of(params.encoder.model) if torch.cuda.is_available() else None
    if shape is None or not questions:
        return ""
    there, lower = torch.cuda.get_device_properties(0).total_memory, "train.states_per_pass"
    if not params.language_model_learns:
        needed = estimate_gpu(params, shape, questions, words=words)
    elif params.train.method == "agent" and (model := shape_of_agent(params)):
        lower = "train.episodes_per_pass and sampled_at_once"
        needed = estimate_agent_gpu(params, model, shape, words=words)
    else:
        return ""
    if needed <= there:
        return ""
    return (
        f"train needs about {needed / 1e9:.1f} GB of the GPU's {there / 1e9:.1f} GB; lower {lower}, or set "
        "train.optimizer.gradient_checkpointing"
    )


def estimate_gpu(params: Params, shape: Shape, questions: Sequence[Question], *, words: float) -> float:
    """Return the bytes that stage train holds on a GPU: its allocator uses again what a pass has freed."""
    text = _passage_tokens(params, words)
    return CONTEXT + _towers(params) * _learning(params, shape) + _pass(params, shape, questions, text)


def estimate_agent_gpu(params: Params, model: Shape, encoder: Shape, *, words: float) -> float:
    """Return the bytes that stage train holds on a GPU where a language model learns, without a vLLM server's.

    Sampling and gradient passes take turns (docs/scale.md).
    """
    train = params.train
    assert train.method == "agent"
    held = 16.0 * model.weights  # in float32: weight, gradient, two moments
    if train.lora:
        held = (
            WEIGHT[train.quantization] * model.linear
            + 2 * (model.weights - model.linear)
            + 16 * model.lora(train.lora.rank)
        )
    tokens = _episode_tokens(params, words)
    # TRL makes the logits a tile at a time; the last states and their gradient are in float32
    kept = _kept_by_token(params, model, "bfloat16", 2) + 8 * model.width
    gradient = train.episodes_per_pass * tokens * kept
    sampling = train.sampled_at_once * tokens * 4 * model.layers * model.keys * (train.server is None)
    return CONTEXT + held + 4 * encoder.weights + max(gradient, sampling)


def estimate_gpu_seconds(
    params: Params, model: Shape | None, encoder: Shape, *, passages: int, words: float
) -> dict[str, float]:
    """Return the seconds of one GPU that products of matrices take: to embed, and where ``model``, an agent, learns.

    A token of a LoRA takes 8 operations a weight: two forward passes, that of the reference, and a backward pass
    without the gradient of frozen weights. Sampling comes on top.
    """
    text, train = _passage_tokens(params, words), params.train
    seconds = {"embed": 2 * encoder.linear * text * passages / GPU_RATE}
    if model and train.method == "agent":
        tokens = train.steps * train.questions_per_step * train.group_size * _episode_tokens(params, words)
        seconds["train"] = 8 * model.linear * tokens / GPU_RATE
    return seconds


def _passage_tokens(params: Params, words: float) -> float:
    """Return the tokens of a passage of so many words, as far as the encoder reads them."""
    return min(params.encoder.max_tokens, TOKENS_A_WORD * words)


def _episode_tokens(params: Params, words: float) -> float:
    """Return the tokens of an agent's longest episode."""
    searches, written = getattr(params.pipeline, "max_searches", 1), getattr(params.train, "max_tokens", 0)
    text = _passage_tokens(params, words)
    return PROMPT + searches * params.retriever.k * text + (searches + 1) * written


def _towers(params: Params) -> int:
    """Return the number of encoders that learn."""
    return 2 if params.train.positions or getattr(params.train, "critic", "") == "encoder" else 1


def _learning(params: Params, shape: Shape) -> float:
    """Return the bytes of a tower that learns: its weights, gradient, its halves, two moments, and the weights of an
    adapter or of a copy that follows. In bfloat16 linear layers are half as large if frozen, else copied so."""
    lora = getattr(params.train, "lora", None)
    learnt = shape.lora(lora.rank) if lora else shape.weights
    halves = (-2 if lora else 2) * shape.linear if _format(params) == "bfloat16" else 0
    return 4 * shape.weights + learnt * (4 + 8 + 8 + 4 * (bool(lora) + params.train.positions)) + halves


def _pass(params: Params, shape: Shape, questions: Sequence[Question], text: float) -> float:
    """Return the bytes that a pass keeps for its gradient."""
    return _tokens(params, questions, text) * _kept_by_token(params, shape, _format(params), 4)


def _kept_by_token(params: Params, shape: Shape, number_format: str, state: int) -> float:
    """Return the bytes that all layers keep of a token for its gradient; ``state``: those of a number between layers."""
    by_width, by_queries = ACTIVATIONS[number_format]
    layer = by_width * shape.width + by_queries * shape.queries
    if _optimizer(params).gradient_checkpointing:  # a layer, and the input of each
        return 1.3 * layer + shape.layers * state * shape.width
    return shape.layers * layer


def _tokens(params: Params, questions: Sequence[Question], text: float) -> float:
    """Return the tokens of a pass: of its states, and of two towers what was picked."""
    pipeline, train, reader = params.pipeline, params.train, params.retriever
    question_tokens = TOKENS_A_WORD * fmean(len(question.text.split()) for question in questions)
    picks = getattr(pipeline, "picks", 0)
    most = picks or getattr(pipeline, "max_hops", 0) or getattr(pipeline, "max_searches", 1)
    searches = picks or min(most, max(1.0, fmean(len(question.gold_ids) for question in questions) or most))
    if picks:
        state = question_tokens + (picks - 1) * min(text, reader.pick_tokens or text)
    else:
        state = question_tokens * (1 + searches / 2) * (1.5 if reader.state == "json" else 1)
    rollouts = max(1.0, SHARED * getattr(train, "group_size", 1))
    distinct = getattr(train, "questions_per_step", 1) * (1 + rollouts * (searches - 1))
    states = min(getattr(train, "states_per_pass", 64), distinct)
    return states * (min(reader.max_tokens, state) + (text if train.positions else 0))


def _format(params: Params) -> str:
    """Return the number format of training, as far as memory goes."""
    return "float32" if _optimizer(params).precision == "float32" else "bfloat16"


def _optimizer(params: Params) -> OptimizerParams:
    """Return the settings of a method that has some, or the defaults."""
    return getattr(params.train, "optimizer", OptimizerParams())
