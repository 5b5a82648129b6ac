"""An in-process generator: any causal language model that transformers can load from safetensors."""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from harr.compute import distributed
from harr.compute.batching import auto_batch
from harr.compute.precision import is_fast_bfloat16
from harr.errors import ModelError, one_line
from harr.io.files import check_sums, read_json
from harr.io.model_folder import UNLOADABLE, check_loadable, language_model_path
from harr.rag.generation.adapter import base_identity
from harr.rag.generation.chat_template import add_settings, keep_turns
from harr.rag.generation.decoding import Draw, StopRows, TokenTexts
from harr.types import Generate, TruncatedCompletion

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
"""Variables of a chat template: none."""


class LocalGenerator:
    """A generator that runs ``model``: a loaded model, a folder or a cached hub name; nothing is downloaded.

    Decoding is greedy at temperature 0. Otherwise a request's random numbers depend on ``seed`` and its text, not on
    the batch: in 32 bits the same request always gets the same completion; in 16 bits the batch's shape may change it.
    A prompt that is too long loses its beginning.

    Raises:
        ModelError: the model is missing, has no safetensors, or needs custom code.
    """

    def __init__(
        self,
        model: "str | LanguageModel",
        *,
        temperature: float,
        max_tokens: int,
        batch_size: int,
        seed: int,
        chat_template_kwargs: Mapping[str, Any] = NO_SETTINGS,
    ) -> None:
        self._temperature, self._seed = temperature, seed
        self._max_tokens, self._batch_size = max_tokens, batch_size
        self._language_model = (
            LanguageModel(*load_model(model, chat_template_kwargs=chat_template_kwargs), name=model)
            if isinstance(model, str)
            else model
        )
        self._usage = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0}

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; equal requests are answered once.

        Raises:
            ModelError: chat messages for a model without a chat template.
        """
        keys = [_key(request) for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        room = self._language_model.room - self._max_tokens
        prompt_ids = {key: self._language_model.encode(request)[-max(1, room) :] for key, request in distinct.items()}
        outputs = self._language_model.generate(
            list(prompt_ids.values()),
            [request.stop for request in distinct.values()],
            temperature=self._temperature,
            keys=[f"{self._seed}\n{key}" for key in distinct],
            max_tokens=self._max_tokens,
            batch_size=self._batch_size,
        )
        completions = {
            key: _make_completion(request, self._language_model.decode(ids))
            for (key, request), ids in zip(distinct.items(), outputs, strict=True)
        }
        self._usage["requests"] += len(distinct)
        self._usage["prompt_tokens"] += sum(map(len, prompt_ids.values()))
        self._usage["completion_tokens"] += sum(map(len, outputs))
        return [completions[key] for key in keys]

    def usage(self) -> Mapping[str, float]:
        """Return the counts so far: requests answered (equal ones of a call once) and their tokens."""
        return dict(self._usage)


class LanguageModel:
    """A causal language model with its tokenizer, which encodes text and continues token ids.

    Attributes:
        name: the model's name in messages. ends: ids of the tokens that end a text.
        room: context length in tokens, prompt and completion together.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        ends = model.generation_config.eos_token_id
        ends = tokenizer.eos_token_id if ends is None else ends
        self.ends: set[int] = set(ends if isinstance(ends, list) else [ends]) - {None}
        self.pad = next(n for n in (tokenizer.pad_token_id, *sorted(self.ends), 0) if n is not None)
        self._texts = TokenTexts(tokenizer)
        self.room: int = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
        model.generation_config = GenerationConfig(eos_token_id=sorted(self.ends) or None, pad_token_id=self.pad)

    def render(self, request: Generate) -> str:
        """Return the text that the model continues.

        Raises:
            ModelError: chat messages for a model without a chat template, or with one that refuses them.
        """
        if not request.messages:
            return request.prompt
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"generator {self.name} has no chat template and takes raw text only; "
                "use pipeline search_r1, or a model tuned for chat"
            )
        messages = [dict(message) for message in request.messages]
        try:
            return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise ModelError(
                f"the chat template of generator {self.name} cannot write these messages: {one_line(error)}; "
                "use pipeline search_r1, or a model whose template takes system, user and assistant"
            ) from None

    def encode(self, request: Generate) -> list[int]:
        """Return the token ids of a request."""
        return self.tokenizer(self.render(request), add_special_tokens=not request.messages)["input_ids"]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of generated ids, without the end token."""
        ids_of_text = ids[:-1] if ids and ids[-1] in self.ends else ids
        return self.tokenizer.decode(ids_of_text, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def row_length(self, ids: Sequence[int], stop: tuple[str, ...]) -> int:
        """Return how many ids :meth:`generate` would keep of a row that another program wrote."""
        size = next((place for place, token in enumerate(ids) if token in self.ends), len(ids))
        if not any(word in self.decode(ids[:size]) for word in stop):
            return min(size + 1, len(ids))
        while any(word in self.decode(ids[: size - 1]) for word in stop):
            size -= 1
        return size

    def generate(
        self,
        contexts: Sequence[Sequence[int]],
        stops: Sequence[tuple[str, ...]],
        *,
        temperature: float,
        keys: Sequence[str],
        max_tokens: int,
        batch_size: int,
    ) -> list[list[int]]:
        """Continue every context, in batches, and return the new ids, in order.

        A row ends with an end token, with the token that completes one of its ``stops``, or after ``max_tokens``. Above
        temperature 0 its random numbers, one per token, depend on its key, not on the batch. A large batch may end once
        half of its rows have; the remaining rows of all batches form new ones. Batches shrink once a GPU runs out of
        memory.

        Raises:
            torch.OutOfMemoryError: a GPU has no room for one row.
        """
        written: list[list[int]] = [[] for _ in contexts]

        def run(rows: Sequence[int]) -> list[int]:
            """Continue rows, and return those that have not ended."""
            counts = [len(written[row]) for row in rows]
            draw = [Draw(temperature, [keys[row] for row in rows], max_tokens, counts)] if temperature else []
            rows_ids, words = [[*contexts[row], *written[row]] for row in rows], [stops[row] for row in rows]
            new_ids, done = self._batch(rows_ids, words, draw, counts, max_tokens)
            for row, ids in zip(rows, new_ids, strict=True):
                written[row] += ids
            return [
                row
                for row, is_done, ids in zip(rows, done, new_ids, strict=True)
                if not (is_done or self.ends.intersection(ids) or self.pad in ids)
            ]

        open_rows = list(range(len(contexts)))
        while open_rows:
            open_rows.sort(key=lambda row: -len(contexts[row]) - len(written[row]))  # most memory first
            open_rows = [row for _, rows in auto_batch(open_rows, batch_size, run, self.name) for row in rows]
        return [self._trim_row(ids, stop) for ids, stop in zip(written, stops, strict=True)]

    def _batch(
        self,
        contexts: Sequence[Sequence[int]],
        stops: Sequence[tuple[str, ...]],
        draw: list[Draw],
        counts: Sequence[int],
        max_tokens: int,
    ) -> tuple[list[list[int]], list[bool]]:
        """Continue every context, as one left-padded batch; return the new ids, and whether each row is done."""
        width = max(len(ids) for ids in contexts)
        ids_BT = torch.tensor([[self.pad] * (width - len(ids)) + list(ids) for ids in contexts])
        mask_BT = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in contexts])
        criterion = StopRows(self._texts, width, stops, counts, max_tokens, self.ends)
        with torch.inference_mode():
            output_BT = self.model.generate(
                input_ids=ids_BT.to(self.model.device),
                attention_mask=mask_BT.to(self.model.device),
                do_sample=False,
                max_new_tokens=max_tokens - min(counts),
                logits_processor=LogitsProcessorList(draw),
                stopping_criteria=StoppingCriteriaList([criterion]),
            )
        return output_BT[:, width:].tolist(), criterion.done

    def _trim_row(self, row: list[int], stop: tuple[str, ...]) -> list[int]:
        """Return a row without padding; the padding token may be the end token."""
        end = next((place for place, token in enumerate(row) if token in self.ends or token == self.pad), len(row))
        has_stop = any(word in self.decode(row[:end]) for word in stop)
        return row[:end] if has_stop else row[: end + 1]


def _make_completion(request: Generate, text: str) -> str:
    """Return a completion without its stop string, if any."""
    completion = request.cut(text)
    return completion if completion != text or not request.stop else TruncatedCompletion(text)


def _key(request: Generate) -> str:
    """Return a request as text: equal for equal requests."""
    messages = [dict(message) for message in request.messages]
    return json.dumps([request.prompt, messages, request.stop], sort_keys=True)


def load_model(
    name: str,
    quantization: str = "none",
    chat_template_kwargs: Mapping[str, Any] = NO_SETTINGS,
) -> tuple[Any, Any]:
    """Return the model and tokenizer of a folder or a cached hub name: safetensors only, no code, nothing downloaded.

    An adapter's folder (PEFT) gives its base with the adapter. ``quantization``: ``nf4`` loads the base's linear layers
    in 4 bits, to train a LoRA on them. A chat template that rewrites earlier turns is replaced by TRL's
    (:mod:`harr.rag.generation.chat_template`), before and after training alike, and ``chat_template_kwargs`` are
    written into it.

    Raises:
        ModelError: the model is missing, has no safetensors, needs custom code or cannot be quantized here; or an
            adapter's base is not the one it was trained on.
        DamagedFile: a file in a folder that harr wrote has changed since.
    """
    bits = {"quantization_config": nf4()} if quantization == "nf4" and _can_quantize() else {}
    folder = language_model_path(name)
    check_sums(folder, "dvc repro -f")
    if (folder / "adapter_config.json").exists():
        check_loadable(folder)
        return _load_adapter(folder, quantization, chat_template_kwargs)
    if folder.is_dir():
        if not (folder / "config.json").exists() or not any(folder.glob("*.safetensors")):
            raise ModelError(
                f"model folder {name} is incomplete: config.json and *.safetensors are expected; set generator.model "
                "to a folder that transformers saved"
            )
        check_loadable(folder)
    elif folder.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        fetch = "" if "/" in name else f", or run `harr fetch-model {name}` (plug-in smollm2)"
        raise ModelError(
            f"model folder {name} does not exist; set generator.model to a folder or a cached hub name{fetch}"
        )
    place = str(folder) if folder.is_dir() else name
    cuda = torch.cuda.is_available()
    device = distributed.device() or ("cuda" if cuda else "cpu")  # with several GPUs: this process's own, from now on
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = load_tokenizer(place, chat_template_kwargs)
        dtype = torch.bfloat16 if bits else "auto"
        model: Any = AutoModelForCausalLM.from_pretrained(place, use_safetensors=True, dtype=dtype, **bits, **local)
    except UNLOADABLE as error:
        raise ModelError(
            f"generator {name!r} cannot be loaded: {one_line(error, 300)}; set generator.model to a folder with a "
            "tokenizer and safetensors, or download it first"
        ) from None
    if not (cuda or is_fast_bfloat16(model.dtype)):
        model = model.float()
    return model.to(device).eval(), tokenizer


def load_tokenizer(place: str, chat_template_kwargs: Mapping[str, Any] = NO_SETTINGS) -> Any:
    """Return the tokenizer of a folder or a cached hub name, with a chat template that keeps earlier turns.

    ``chat_template_kwargs`` are written into the template (:func:`add_settings`).
    """
    tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    return add_settings(keep_turns(tokenizer), chat_template_kwargs)


def nf4() -> BitsAndBytesConfig:
    """Return QLoRA's 4-bit configuration (arXiv 2305.14314): bfloat16 compute and storage, no double quantization.

    >>> nf4().bnb_4bit_quant_type
    'nf4'
    """
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_quant_storage=torch.bfloat16,
        bnb_4bit_use_double_quant=False,
    )


def _can_quantize() -> bool:
    """Return True if NF4 is possible here.

    Raises:
        ModelError: there is no CUDA GPU, or bitsandbytes is not installed.
    """
    if not torch.cuda.is_available():
        raise ModelError(
            "train.quantization nf4 needs a CUDA GPU, and none is seen here; "
            "set train.quantization: none: LoRA in bfloat16"
        )
    if find_spec("bitsandbytes") is None:
        raise ModelError(
            "train.quantization nf4 needs bitsandbytes, which is not installed; run pip install 'harr[qlora]', or set "
            "train.quantization: none: LoRA in bfloat16"
        )
    return True


def _load_adapter(folder: Path, quantization: str, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    from peft import PeftModel  # takes a second to import, and most models have no adapter

    try:
        facts = read_json(folder / "harr.json")
        old = str(facts["base"])
        base = str(folder / facts["beside"] if "beside" in facts else facts["base_model"])  # LeReT's own
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelError(
            f"adapter {folder} lacks harr.json, which names its base_model and the fingerprint of that, base; "
            "run `dvc repro -f -s train`"
        ) from None
    model, tokenizer = load_model(base, quantization, chat_template_kwargs=settings)
    if (folder / "tokenizer_config.json").exists():  # with the chat template of its training
        tokenizer = load_tokenizer(str(folder), settings)
    if (new := base_identity(base)) != old:
        raise ModelError(
            f"adapter {folder} was trained on another model than {base} now is (fingerprint {old}, found {new}); "
            "put that model back, or run `dvc repro -f -s train`"
        )
    try:
        return PeftModel.from_pretrained(model, str(folder), is_trainable=False).eval(), tokenizer
    except UNLOADABLE as error:
        raise ModelError(
            f"adapter {folder} does not fit {base}: {one_line(error, 300)}; run `dvc repro -f -s train`"
        ) from None
