"""How a language model in this process draws its next token, and by which strings a text ends."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import LogitsProcessor, StoppingCriteria


class Draw(LogitsProcessor):
    """Draws every row's next token from softmax(logits / temperature) by inverse transform sampling.

    One uniform number a row and token is looked up in the cumulative distribution, on the model's device; the numbers
    of a row follow from its key. The token that is drawn keeps a score of 0 and all others get minus infinity, so that
    the largest score is the sample. All is computed in place: of 152,000 tokens a copy costs more than the draw.

    Args:
        temperature: above 0.
        keys: one text per row; equal keys give equal numbers.
        max_tokens: number of tokens that are drawn at most.

    >>> draw = Draw(1.0, ["a", "b"], max_tokens=4)
    >>> draw(torch.zeros(2, 3, dtype=torch.long), torch.tensor([[0.0, 99.0], [99.0, 0.0]])).argmax(dim=1).tolist()
    [1, 0]
    """

    def __init__(self, temperature: float, keys: Sequence[str], max_tokens: int) -> None:
        self._temperature = temperature
        self._uniform_TB = torch.stack([_uniform(key, max_tokens) for key in keys], dim=1)
        self._drawn = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores (rows, vocabulary), overwritten, with the drawn tokens only."""
        self._uniform_TB = self._uniform_TB.to(scores.device)
        cumulative_BV = scores.div_(self._temperature).sub_(scores.amax(dim=-1, keepdim=True)).exp_().cumsum_(dim=-1)
        sought_B1 = self._uniform_TB[self._drawn, :, None] * cumulative_BV[:, -1:]
        self._drawn += 1
        drawn_B1 = torch.searchsorted(cumulative_BV, sought_B1, right=True)
        return scores.fill_(-torch.inf).scatter_(1, drawn_B1, 0.0)


def _uniform(key: str, count: int) -> torch.Tensor:
    """Return numbers in [0, 1) that follow from a key, as float32; none is so near 1 that a product rounds to 1."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") >> 1
    return torch.rand(count, generator=torch.Generator().manual_seed(seed)) * (1 - 2**-22)


class TokenTexts:
    """The texts of a tokenizer's tokens: which tokens may complete a stop string."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._with: dict[str, frozenset[int]] = {}

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of rows of token ids, without special tokens."""
        if not rows:
            return []
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @cached_property
    def _each(self) -> list[str]:
        return self.decode([[token] for token in range(len(self.tokenizer))])

    def may_complete(self, token: int, words: Sequence[str]) -> bool:
        """Return whether a text may hold one of ``words`` only now that its last token is this one.

        Only tokens with a word's last character can complete it. Of other characters than printable ASCII a token may
        hold a part, or lose it where it is decoded alone; then any token may.
        """
        return any(
            not (last.isascii() and last.isprintable() and last != " ") or token in self._holding(last)
            for last in (word[-1] for word in words)
        )

    def _holding(self, character: str) -> frozenset[int]:
        if character not in self._with:
            self._with[character] = frozenset(n for n, text in enumerate(self._each) if character in text)
        return self._with[character]


class StopStrings(StoppingCriteria):
    """A stopping criterion: a row is done when its new text holds one of its stop strings.

    Args:
        texts: of the model's tokenizer.
        width: number of tokens that the rows were given.
        stops: the stop strings of every row.
    """

    def __init__(self, texts: TokenTexts, width: int, stops: Sequence[tuple[str, ...]]) -> None:
        self._texts, self._width, self._stops = texts, width, stops
        self._done = [False] * len(stops)
        # a token is a character at least, or a part of one (at most four bytes)
        self._tail = 4 + 4 * max((len(word) for words in stops for word in words), default=0)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which rows (shape: rows) are done."""
        last = input_ids[:, -1].tolist()
        asked = [
            row
            for row, words in enumerate(self._stops)
            if words and not self._done[row] and self._texts.may_complete(last[row], words)
        ]
        tails = input_ids[:, max(self._width, input_ids.shape[1] - self._tail) :]
        for row, text in zip(asked, self._texts.decode(tails[asked].tolist()), strict=True):
            self._done[row] = any(word in text for word in self._stops[row])
        return torch.tensor(self._done, device=input_ids.device)
