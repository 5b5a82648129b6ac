"""What was made of texts, the latest of which are kept."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

Made = TypeVar("Made")

MOST = 10_000
"""Number of texts that are kept; the token vectors of one take 10 to 100 KB."""


class Recent(Generic[Made]):
    """Makes something of each text, by ``make`` of several, and keeps the latest.

    >>> upper = Recent(lambda texts: [text.upper() for text in texts])
    >>> upper(["a", "b", "a"])
    {'a': 'A', 'b': 'B'}
    """

    def __init__(self, make: Callable[[list[str]], Sequence[Made]]) -> None:
        self._make, self._kept = make, dict[str, Made]()

    def __call__(self, texts: Iterable[str]) -> dict[str, Made]:
        """Return what there is of each distinct text; only new ones are made."""
        distinct = dict.fromkeys(texts)
        known = {text: self._kept.pop(text) for text in distinct if text in self._kept}
        new = [text for text in distinct if text not in known]
        known |= zip(new, self._make(new), strict=True) if new else ()
        self._kept |= known
        for text in list(self._kept)[:-MOST]:
            del self._kept[text]
        return known
