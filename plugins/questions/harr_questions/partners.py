"""Pairs of passages for questions over two: those that share words that few others have."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from harr.characters import list_words
from harr.types import Passage

SAME = 0.8
"""Cosine from which two passages say the same, so that no question needs both."""
MOST = 3
"""Maximum number of partners of a passage."""
ROWS = 512
"""Number of passages compared with all others at a time."""


def partners(passages: Sequence[Passage]) -> list[tuple[int, int]]:
    """Return pairs of places: every passage with its nearest, then each with its second nearest, then its third.

    Nearness is the cosine of words weighted by rarity; a word in only one passage counts for nothing.

    >>> texts = ["The pump P7 is by Acme.", "Acme sits in Ashford.", "Cats sleep.", "The pump P7 is by Acme."]
    >>> partners([Passage(str(number), text) for number, text in enumerate(texts)])
    [(0, 1), (3, 1)]
    """
    words = [Counter(word for word in list_words(passage.content) if len(word) > 1) for passage in passages]
    having = Counter(word for found in words for word in found)
    known = {word: place for place, word in enumerate(sorted(word for word, count in having.items() if count > 1))}
    cells = [(row, word, found[word]) for row, found in enumerate(words) for word in sorted(found) if word in known]
    if not cells:
        return []
    weights = np.array([(1 + np.log(count)) * np.log(1 + len(words) / having[word]) for _, word, count in cells])
    rows = np.array([row for row, _, _ in cells])
    norms = np.sqrt(np.bincount(rows, weights**2, minlength=len(words)))
    matrix = csr_array(
        (weights / norms[rows], (rows, [known[word] for _, word, _ in cells])), shape=(len(words), len(known))
    )
    nearest: list[list[int]] = []
    for start in range(0, len(words), ROWS):
        near = (matrix[start : start + ROWS] @ matrix.T).toarray()
        near[near >= SAME] = 0.0  # itself, too
        best = np.argsort(-near, axis=1, kind="stable")[:, :MOST]
        nearest += [[int(to) for to in row if near[at, to] > 0] for at, row in enumerate(best)]
    pairs = [(one, row[rank]) for rank in range(MOST) for one, row in enumerate(nearest) if rank < len(row)]
    once: dict[frozenset[int], tuple[int, int]] = {}
    for pair in pairs:
        once.setdefault(frozenset(pair), pair)
    return list(once.values())
