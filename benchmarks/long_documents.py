"""One pick in a long document, rows of a matrix against a dictionary: `python -m benchmarks.long_documents`.

Prints processor seconds per pick for documents of 40,000 and 500,000 sentences (the latter only with rows of a matrix),
and the ratio. Vectors are random: no model is used. Both ways must give the same values.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harr.rag.policies.q_values import MODES, positions, rotary_q_values, rotate, values
from harr.rag.policies.sentence_vectors import Sentences
from harr.rag.policies.two_tower import BLOCK

WIDTH, PICKED, ROWS = 384, (1000, 20_000), 65_536


def seconds(call: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Return the processor seconds of a call, the best of three, and its result."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        found = call()
        best = min(best, time.process_time() - began)
    return best, found


def by_dictionary(state_D: Tensor, texts: list[str], vectors_of: dict[str, Tensor], position_N: Tensor) -> Tensor:
    """Compute the old way: look up every sentence, stack, rotate every vector, multiply."""
    vectors_ND = torch.stack([vectors_of[text] for text in texts])
    parts = [
        values(state_D[None], rotate(vectors_ND[i : i + ROWS], position_N[i : i + ROWS])[None])[:, 0]
        for i in range(0, len(texts), ROWS)
    ]
    return torch.cat(parts, dim=-1)


def by_rows(state_D: Tensor, sentences: Sentences, rows_N: NDArray[np.int64], position_N: Tensor | None) -> Tensor:
    """Compute the present way: gather blocks of rows, without rotating them."""
    parts = [
        rotary_q_values(
            state_D,
            sentences.gather(rows_N[i : i + BLOCK]),
            None if position_N is None else position_N[i : i + BLOCK],
        )
        for i in range(0, len(rows_N), BLOCK)
    ]
    return torch.cat(parts, dim=-1)


def given(matrix_ND: NDArray[np.float32], _: Sequence[str]) -> NDArray[np.float32]:
    """Stand in for the encoder."""
    return matrix_ND


def main() -> None:
    """Measure every position mode."""
    rng = np.random.default_rng(0)
    state_D = torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal(WIDTH, dtype=np.float32)), dim=-1)
    for length in (40_000, 500_000):
        texts, sentences = [f"sentence {number}" for number in range(length)], Sentences()
        rows_N = sentences.rows(texts)
        matrix_ND = rng.standard_normal((length, WIDTH), dtype=np.float32) / WIDTH**0.5
        sentences.prepare(rows_N, partial(given, matrix_ND))
        for mode in MODES:
            position_N = torch.from_numpy(positions(mode, length, PICKED, rng))
            turned = None if mode == "none" else position_N
            fast, found = seconds(partial(by_rows, state_D, sentences, rows_N, turned))
            line = f"{length:,} sentences, {mode}: {fast:.3f} s"
            if length == 40_000:
                vectors_of = dict(zip(texts, torch.from_numpy(matrix_ND), strict=True))
                slow, expected = seconds(partial(by_dictionary, state_D, texts, vectors_of, position_N))
                torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
                line += f", by dictionary {slow:.3f} s, ratio {slow / fast:.1f}"
            print(line)


if __name__ == "__main__":
    main()
