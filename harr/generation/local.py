"""A generator in this process: any causal language model that transformers can load from safetensors."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from harr.errors import ModelError
from harr.types import Generate


class LocalGenerator:
    """Completions from ``model``, a folder or a hub name that is in the local cache; nothing is downloaded.

    At temperature 0 the most likely token is taken. Else the random numbers of a request follow from
    ``seed`` and its text: neither its neighbours nor the batch size change them, and the same
    request always gets the same completion. A prompt that is too long loses its beginning.

    Raises:
        ModelError: the model is missing, holds no safetensors, or needs code of its own.
    """

    def __init__(self, model: str, *, temperature: float, max_tokens: int, batch_size: int, seed: int) -> None:
        self._name, self._temperature, self._seed = model, temperature, seed
        self._max_tokens, self._batch_size = max_tokens, batch_size
        self._model, self._tokenizer = _load(model)
        ends = self._model.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if ends is None else ends
        self._ends = set(ends if isinstance(ends, list) else [ends]) - {None}
        self._pad = next(n for n in (self._tokenizer.pad_token_id, *sorted(self._ends), 0) if n is not None)
        self._model.generation_config = GenerationConfig(
            eos_token_id=sorted(self._ends) or None, pad_token_id=self._pad, max_new_tokens=max_tokens
        )
        self._usage = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; equal requests are answered once.

        Raises:
            ModelError: chat messages for a model without a chat template.
        """
        keys = [_key(request) for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        coded = {key: self._encode(request) for key, request in distinct.items()}
        order = sorted(distinct, key=lambda key: len(coded[key]), reverse=True)  # what needs most memory comes first
        done: dict[str, str] = {}
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            asked = [distinct[key] for key in batch]
            done.update(zip(batch, self._generate(batch, [coded[key] for key in batch], asked), strict=True))
        self._usage["requests"] += len(distinct)
        return [done[key] for key in keys]

    def usage(self) -> Mapping[str, float]:
        """Requests answered (equal ones of a call once), and their tokens, so far."""
        return dict(self._usage)

    def _encode(self, request: Generate) -> list[int]:
        room = getattr(self._model.config, "max_position_embeddings", None)
        text = request.prompt
        if request.messages:
            if not self._tokenizer.chat_template:
                raise ModelError(
                    f"generator {self._name} has no chat template and takes raw text only; "
                    "use pipeline search_r1, or a model tuned for chat"
                )
            text = self._tokenizer.apply_chat_template(
                [dict(message) for message in request.messages], tokenize=False, add_generation_prompt=True
            )
        ids: list[int] = self._tokenizer(text, add_special_tokens=not request.messages)["input_ids"]
        return ids[-max(1, room - self._max_tokens) :] if room else ids

    def _generate(
        self, keys: Sequence[str], prompts: Sequence[list[int]], requests: Sequence[Generate]
    ) -> Iterator[str]:
        """Complete one left-padded batch."""
        width = max(len(ids) for ids in prompts)
        ids = torch.tensor([[self._pad] * (width - len(row)) + row for row in prompts])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
        noise = LogitsProcessorList([_Sample(self._temperature, self._seed, keys)] if self._temperature else [])
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=ids.to(self._model.device),
                attention_mask=mask.to(self._model.device),
                do_sample=False,
                logits_processor=noise,
                stopping_criteria=StoppingCriteriaList(
                    [_Stop(self._tokenizer, width, [request.stop for request in requests])]
                ),
            )
        for prompt, row, request in zip(prompts, output[:, width:].tolist(), requests, strict=True):
            end = next((place for place, token in enumerate(row) if token in self._ends), len(row))
            text = self._tokenizer.decode(row[:end], skip_special_tokens=True, clean_up_tokenization_spaces=False)
            self._usage["prompt_tokens"] += len(prompt)
            self._usage["completion_tokens"] += sum(token != self._pad for token in row[: end + 1])
            yield request.cut(text)


class _Stop(StoppingCriteria):
    """A row is done when its new text holds one of its stop strings."""

    def __init__(self, tokenizer: Any, width: int, stops: Sequence[tuple[str, ...]]) -> None:
        self._tokenizer, self._width, self._stops = tokenizer, width, stops
        self._done = [False] * len(stops)
        # a token is a character at least, or a part of one (at most four bytes)
        self._tail = 4 + 4 * max((len(word) for words in stops for word in words), default=0)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        tails = self._tokenizer.batch_decode(
            input_ids[:, self._width :][:, -self._tail :],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        self._done = [
            done or any(word in tail for word in words)
            for done, tail, words in zip(self._done, tails, self._stops, strict=True)
        ]
        return torch.tensor(self._done, device=input_ids.device)


class _Sample(LogitsProcessor):
    """Gumbel noise on logits / temperature: the largest is a sample; each row has its own random numbers."""

    def __init__(self, temperature: float, seed: int, keys: Sequence[str]) -> None:
        self._temperature = temperature
        digests = [hashlib.sha256(f"{seed}\n{key}".encode()).digest() for key in keys]
        self._random = [torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1) for digest in digests]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        uniform = torch.stack([torch.rand(scores.shape[1], generator=source) for source in self._random])
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        return scores.float() / self._temperature + gumbel.to(scores.device)


def _key(request: Generate) -> str:
    """A request as text: equal for equal requests."""
    return json.dumps([request.prompt, [dict(message) for message in request.messages], request.stop], sort_keys=True)


def _load(name: str) -> tuple[Any, Any]:
    """Model and tokenizer, from local files only."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists() or not any(folder.glob("*.safetensors")):
            raise ModelError(
                f"model folder {name} is incomplete: config.json and *.safetensors are expected; set generator.model "
                "to a folder that transformers saved"
            )
    elif folder.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise ModelError(f"model folder {name} does not exist; set generator.model to a folder or a cached hub name")
    place = str(folder) if folder.is_dir() else name
    cuda = torch.cuda.is_available()
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **local)
        model: Any = AutoModelForCausalLM.from_pretrained(
            place, use_safetensors=True, dtype="auto" if cuda else torch.float32, **local
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"generator {name!r} cannot be loaded: {reason}; set generator.model to a folder with a tokenizer "
            "and safetensors, or download it first"
        ) from None
    return model.to("cuda" if cuda else "cpu").eval(), tokenizer
