"""A cache of what was computed from the latest texts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

Made = TypeVar("Made")

MOST = 10_000
"""Number of texts kept; the token vectors of one take 10 to 100 KB."""


class Recent(Generic[Made]):
    """A cache of results per text, computed by ``make`` for several at once; the latest are kept.

    >>> upper = Recent(lambda texts: [text.upper() for text in texts])
    >>> upper(["a", "b", "a"])
    {'a': 'A', 'b': 'B'}
    """

    def __init__(self, make: Callable[[list[str]], Sequence[Made]]) -> None:
        self._make, self._kept = make, dict[str, Made]()

    def __call__(self, texts: Iterable[str]) -> dict[str, Made]:
        """Return the result for each distinct text; only new ones are computed."""
        distinct = dict.fromkeys(texts)
        known = {text: self._kept.pop(text) for text in distinct if text in self._kept}
        new = [text for text in distinct if text not in known]
        known |= zip(new, self._make(new), strict=True) if new else ()
        self._kept |= known
        for text in list(self._kept)[:-MOST]:
            del self._kept[text]
        return known
