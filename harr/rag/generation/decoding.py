"""Token sampling and stop strings for an in-process language model."""

import hashlib
import sys
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import LogitsProcessor, StoppingCriteria

MANY_ROWS = 8
"""Minimum number of rows of a batch that may end once half of them have; the others join new batches."""


class Draw(LogitsProcessor):
    """Draws every row's next token from softmax(logits / temperature) by inverse transform sampling.

    One uniform number per row and token is looked up in the cumulative distribution, on the model's device; a row's
    numbers depend on its key. The drawn token gets a score of 0 and all others minus infinity, so the largest score is
    the sample. Everything is computed in place: copying 152,000 scores costs more than the draw.

    Args:
        temperature: above 0.
        keys: one text per row; equal keys give equal numbers.
        max_tokens: maximum number of tokens.
        written: number of tokens that each row already has; empty: none.

    >>> draw = Draw(1.0, ["a", "b"], max_tokens=4)
    >>> draw(torch.zeros(2, 3, dtype=torch.long), torch.tensor([[0.0, 99.0], [99.0, 0.0]])).argmax(dim=1).tolist()
    [1, 0]
    """

    def __init__(self, temperature: float, keys: Sequence[str], max_tokens: int, written: Sequence[int] = ()) -> None:
        self._temperature = temperature
        rows = [_uniform(key, max_tokens)[start:] for key, start in zip(keys, written or [0] * len(keys), strict=True)]
        self._uniform_TB = torch.nn.utils.rnn.pad_sequence(rows)
        self._step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Overwrite the scores (rows, vocabulary), so that only the drawn tokens are finite, and return them."""
        self._uniform_TB = self._uniform_TB.to(scores.device)
        cumulative_BV = scores.div_(self._temperature).sub_(scores.amax(dim=-1, keepdim=True)).exp_().cumsum_(dim=-1)
        sought_B1 = self._uniform_TB[self._step, :, None] * cumulative_BV[:, -1:]
        self._step += 1
        drawn_B1 = torch.searchsorted(cumulative_BV, sought_B1, right=True)
        return scores.fill_(-torch.inf).scatter_(1, drawn_B1, 0.0)


def _uniform(key: str, count: int) -> torch.Tensor:
    """Return float32 numbers in [0, 1), seeded by a key; none is so near 1 that a product rounds to 1."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") >> 1
    return torch.rand(count, generator=torch.Generator().manual_seed(seed)) * (1 - 2**-22)


class TokenTexts:
    """The texts of a tokenizer's tokens, to tell which tokens may complete a stop string."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._by_char: dict[str, frozenset[int]] = {}

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of rows of token ids, without special tokens."""
        if not rows:
            return []
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @cached_property
    def _token_texts(self) -> list[str]:
        return self.decode([[token] for token in range(len(self.tokenizer))])

    def may_complete(self, token: int, words: Sequence[str]) -> bool:
        """Return whether ``token``, as the last one of a text, may complete one of ``words``.

        Only tokens with a word's last character can complete it. For a character outside printable ASCII any token may:
        a token may contain only part of it, or lose it when decoded alone.
        """
        return any(
            not (last.isascii() and last.isprintable() and last != " ") or token in self._tokens_with(last)
            for last in (word[-1] for word in words)
        )

    def _tokens_with(self, char: str) -> frozenset[int]:
        if char not in self._by_char:
            self._by_char[char] = frozenset(n for n, text in enumerate(self._token_texts) if char in text)
        return self._by_char[char]


class StopRows(StoppingCriteria):
    """A stopping criterion: a row is done once its new text contains a stop string or reaches its maximum length.

    It ends a batch of many rows once half of them have ended: the others continue with rows of other batches, so
    finished rows are not computed while they wait. The others are read again there, so a batch ends early only if a row
    may still write more than it has read.

    Args:
        texts: token texts of the model's tokenizer.
        width: number of tokens in the given rows.
        stops: the stop strings of every row.
        written: number of the given tokens that each row wrote itself; empty: none.
        max_tokens: maximum number of tokens that a row writes in all.
        ends: tokens that end a text.

    Attributes:
        done: whether a stop string or its length has ended each row.
    """

    def __init__(
        self,
        texts: TokenTexts,
        width: int,
        stops: Sequence[tuple[str, ...]],
        written: Sequence[int] = (),
        max_tokens: int = sys.maxsize,
        ends: Collection[int] = (),
    ) -> None:
        self._texts, self._width, self._stops, self._ends = texts, width, stops, ends
        self._written, self._max_tokens = written or [0] * len(stops), max_tokens
        self.done = [False] * len(stops)
        self._ended = [False] * len(stops)
        # a token is at least one character, or part of one (at most four bytes)
        self._tail = 4 + 4 * max((len(word) for words in stops for word in words), default=0)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which rows (shape: rows) are done."""
        tails, new = input_ids[:, -self._tail :].tolist(), input_ids.shape[1] - self._width
        last = [tail[-1] for tail in tails]
        self._ended = [has_ended or token in self._ends for has_ended, token in zip(self._ended, last, strict=True)]
        open_rows = [
            row
            for row, words in enumerate(self._stops)
            if words and not self.done[row] and self._texts.may_complete(last[row], words)
        ]
        new_ids = [tails[row][-(self._written[row] + new) :] for row in open_rows]
        for row, text in zip(open_rows, self._texts.decode(new_ids), strict=True):
            self.done[row] = any(word in text for word in self._stops[row])
        for row, count in enumerate(self._written):
            self.done[row] = self.done[row] or count + new >= self._max_tokens
        ended_count = sum(done or has_ended for done, has_ended in zip(self.done, self._ended, strict=True))
        to_come = self._max_tokens - min(self._written) - new
        if len(last) >= MANY_ROWS and 2 * ended_count >= len(last) and to_come > self._width:
            return torch.ones(len(last), dtype=torch.bool, device=input_ids.device)
        return torch.tensor(self.done, device=input_ids.device)
