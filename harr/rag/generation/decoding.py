"""How a language model in this process draws its next token, and by which strings a text ends."""

import hashlib
import sys
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import LogitsProcessor, StoppingCriteria

MANY_ROWS = 8
"""Number of rows of a batch from which on those that are left, when half have ended, are put together with others."""


class Draw(LogitsProcessor):
    """Draws every row's next token from softmax(logits / temperature) by inverse transform sampling.

    One uniform number a row and token is looked up in the cumulative distribution, on the model's device; the numbers
    of a row follow from its key. The token that is drawn keeps a score of 0 and all others get minus infinity, so that
    the largest score is the sample. All is computed in place: of 152,000 tokens a copy costs more than the draw.

    Args:
        temperature: above 0.
        keys: one text per row; equal keys give equal numbers.
        max_tokens: number of tokens that are drawn at most.
        begun: how many of them each row has already; empty: none.

    >>> draw = Draw(1.0, ["a", "b"], max_tokens=4)
    >>> draw(torch.zeros(2, 3, dtype=torch.long), torch.tensor([[0.0, 99.0], [99.0, 0.0]])).argmax(dim=1).tolist()
    [1, 0]
    """

    def __init__(self, temperature: float, keys: Sequence[str], max_tokens: int, begun: Sequence[int] = ()) -> None:
        self._temperature = temperature
        rows = [_uniform(key, max_tokens)[start:] for key, start in zip(keys, begun or [0] * len(keys), strict=True)]
        self._uniform_TB = torch.nn.utils.rnn.pad_sequence(rows)
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


class StopRows(StoppingCriteria):
    """A stopping criterion: a row is done when its new text holds one of its stop strings, or has its length.

    Where half of many rows have ended, it ends the batch: the others go on with those of other batches, so that no row
    is computed for long that only waits for its neighbours.

    Args:
        texts: of the model's tokenizer.
        width: number of tokens that the rows were given.
        stops: the stop strings of every row.
        begun: how many of the given tokens every row has written itself; empty: none.
        max_tokens: number of tokens that a row writes in all.
        ends: tokens that end a text.

    Attributes:
        done: for every row whether a stop string or its length has ended it.
    """

    def __init__(
        self,
        texts: TokenTexts,
        width: int,
        stops: Sequence[tuple[str, ...]],
        begun: Sequence[int] = (),
        max_tokens: int = sys.maxsize,
        ends: Collection[int] = (),
    ) -> None:
        self._texts, self._width, self._stops, self._ends = texts, width, stops, ends
        self._begun, self._max_tokens = begun or [0] * len(stops), max_tokens
        self.done = [False] * len(stops)
        self._over = [False] * len(stops)
        # a token is a character at least, or a part of one (at most four bytes)
        self._tail = 4 + 4 * max((len(word) for words in stops for word in words), default=0)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which rows (shape: rows) are done."""
        last, new = input_ids[:, -1].tolist(), input_ids.shape[1] - self._width
        self._over = [over or token in self._ends for over, token in zip(self._over, last, strict=True)]
        asked = [
            row
            for row, words in enumerate(self._stops)
            if words and not self.done[row] and self._texts.may_complete(last[row], words)
        ]
        tails = input_ids[asked, -self._tail :].tolist()
        own = [tail[-(self._begun[row] + new) :] for row, tail in zip(asked, tails, strict=True)]
        for row, text in zip(asked, self._texts.decode(own), strict=True):
            self.done[row] = any(word in text for word in self._stops[row])
        for row, begun in enumerate(self._begun):
            self.done[row] = self.done[row] or begun + new >= self._max_tokens
        ended = sum(done or over for done, over in zip(self.done, self._over, strict=True))
        if len(last) >= MANY_ROWS and 2 * ended >= len(last):
            return torch.ones(len(last), dtype=torch.bool, device=input_ids.device)
        return torch.tensor(self.done, device=input_ids.device)
