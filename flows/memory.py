"""Estimate the peak memory of stages embed, train and evaluate before anything is computed.

What grows with a recipe is counted from its parameters and its questions; what does not (libraries, tracker, report)
was measured once. docs/performance.md compares the sums with what stages took. On a GPU all but libraries and index
lies there.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from huggingface_hub import snapshot_download

from flows.doctor.finding import Finding, ok, warn
from harr.datasets.preview import Data
from harr.errors import HarrError
from harr.index.kinds import memory_bytes
from harr.io.model_folder import PACKAGED, find_folder
from harr.params import Params
from harr.params.loop import OptimizerParams
from harr.types import Question
from tasks.runtime.limits import Sizes, unit, written

BASE = {"embed": 0.85e9, "train": 0.9e9, "evaluate": 1.2e9}
"""Bytes that a stage holds of libraries, data checks and tracking."""
KEPT = 2.0
"""Times the activations of a pass that a process holds: the heap keeps room of passes of other lengths."""
ACTIVATIONS = {"bfloat16": 55.0, "float32": 66.0}
"""Bytes that a layer keeps for the backward pass, a token and a number of its width (MiniLM, with LoRA and without)."""
WORDS = 100.0
"""Words of a passage of a corpus that is not read beforehand: wiki18's."""
MILVUS_LITE = 3.0
"""Times the vectors that Milvus Lite holds (a million of width 128: docs/scale.md)."""
TOKENS_A_WORD = 1.4
TEXT_BYTES = 650.0
"""Bytes of a passage of a corpus that is not read beforehand: wiki18's."""
SHARED = 0.3
"""Share of the rollouts of a question whose later states differ."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An encoder: number of ``weights``, and ``width``, ``inner`` width and number of its ``layers``."""

    weights: int
    width: int
    inner: int
    layers: int

    def lora(self, rank: int) -> int:
        """Return the weights of an adapter on all linear layers.

        >>> Shape(weights=22_713_728, width=384, inner=1536, layers=6).lora(32)
        1327104
        """
        return self.layers * rank * (10 * self.width + 2 * self.inner)


def files_check(params: Params, data: Data, passages: int, free: float) -> list[Finding]:
    """Return what stages will write of so many passages against the bytes that are ``free``; nothing where the encoder
    or the number is unknown."""
    shape = shape_of(params.encoder.model)
    if shape is None or not passages:
        return []
    text = fmean(map(len, data.contents.values())) if data.contents else TEXT_BYTES
    size = Sizes(passages, shape.width, round(text * passages))
    counts = {"download": size.text, **written(params, size)}
    message = ", ".join(f"{unit(count)} by {stage}" for stage, count in counts.items() if count)
    message = f"of {passages:,} passages about {message}, and again in DVC's cache where it copies"
    if params.index.uri:
        message += f"; {unit(memory_bytes(params.index, passages, shape.width))} of memory at the Milvus server"
    if sum(counts.values()) <= free:
        return [ok("files", message)]
    return [warn("files", f"{message}; {unit(free)} free here", "make room, or run where there is more")]


def memory_check(params: Params, data: Data, passages: int, here: float) -> list[Finding]:
    """Return what the stages will hold against the bytes that are ``here``; nothing where that is unknown."""
    shape, questions = shape_of(params.encoder.model), data.splits.train
    if shape is None or not questions:
        return []
    words = fmean(len(text.split()) for text in data.contents.values()) if data.contents else WORDS
    estimate = estimate_memory(params, shape, questions, passages=passages, words=words)
    message = "about " + ", ".join(f"{count / 1e9:.1f} GB to {stage}" for stage, count in estimate.items())
    message += "" if passages or params.index.uri else ", and what the index takes"
    if max(estimate.values()) <= here:
        return [ok("memory", message)]
    fix = "lower train.states_per_pass, set train.optimizer.gradient_checkpointing or index.uri, or run where there is more"
    return [warn("memory", f"{message}; {here / 1e9:.1f} GB here", fix)]


def shape_of(model: str) -> Shape | None:
    """Return the shape of a model that is on this machine; None of one that is not, or names no layers."""
    folder = Path(model).expanduser()
    try:
        if model == PACKAGED or folder.is_dir():
            folder = find_folder(model)
        else:
            name = model if "/" in model else f"sentence-transformers/{model}"
            folder = Path(snapshot_download(name, local_files_only=True))
        config = next(
            values
            for path in sorted(folder.rglob("config.json"))
            if "hidden_size" in (values := json.loads(path.read_text(encoding="utf-8")))
        )
        weights = sum(map(_weights, folder.rglob("*.safetensors")))
        return Shape(weights, config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"])
    except (HarrError, OSError, ValueError, KeyError, TypeError, StopIteration):
        return None


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
    text = min(params.encoder.max_tokens, TOKENS_A_WORD * words)
    rows = min(passages or params.embed.shard_size, params.embed.shard_size)
    shard = rows * (4 * shape.width + 8 * words)
    reading = 8 * (shape.inner + 4 * shape.width)  # a token of a pass without gradient, in two layers
    estimate = {"embed": BASE["embed"] + (6 if half else 4) * shape.weights + shard}
    estimate["embed"] += params.embed.batch_size * text * reading
    if params.language_model_learns:
        return estimate
    index = 0.0 if params.index.uri else MILVUS_LITE * 4 * passages * shape.width
    towers = 2 if params.train.positions or getattr(params.train, "critic", "") == "encoder" else 1
    models = towers * 4 * shape.weights
    estimate["train"] = BASE["train"] + index + models + towers * _learning(params, shape)
    estimate["train"] += KEPT * _pass(params, shape, questions, text)
    estimate["evaluate"] = BASE["evaluate"] + index + 2 * models  # the base, and a trained arm
    return estimate


def _learning(params: Params, shape: Shape) -> float:
    """Return the bytes of what a tower learns with: gradient, its halves, two moments, and the weights of an adapter or
    of a copy that follows; and in bfloat16 a copy of all weights."""
    lora = getattr(params.train, "lora", None)
    learnt = shape.lora(lora.rank) if lora else shape.weights
    copied = 2 * shape.weights if _format(params) == "bfloat16" else 0
    return learnt * (4 + 8 + 8 + 4 * (bool(lora) + params.train.positions)) + copied


def _pass(params: Params, shape: Shape, questions: Sequence[Question], text: float) -> float:
    """Return the bytes that a pass keeps for its gradient: of its states, and of two towers what was picked."""
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
    tokens = states * (min(reader.max_tokens, state) + (text if train.positions else 0))
    layers = 2 if _optimizer(params).gradient_checkpointing else shape.layers
    return tokens * layers * shape.width * ACTIVATIONS[_format(params)]


def _format(params: Params) -> str:
    """Return the number format of training, as far as memory goes."""
    return "float32" if _optimizer(params).precision == "float32" else "bfloat16"


def _optimizer(params: Params) -> OptimizerParams:
    """Return the settings of a method that has some, or the defaults."""
    return getattr(params.train, "optimizer", OptimizerParams())
