"""An on-disk cache of completions, shared by later stages and resumed runs."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harr.errors import ParamsError
from harr.io.files import fingerprint
from harr.io.shared_table import SharedTable
from harr.types import ContextFull, Generate, Generator, TruncatedCompletion

BATCH = 512
"""Number of new completions per write: the most that a kill or a dead server loses."""
TABLE = "completions"
MANY = 8
"""Minimum number of prompts before checking that at most half leave too little room."""


class CachedGenerator:
    """A generator with a cache; ``path`` belongs to one model with one seed and one set of sampling parameters.

    The key is the whole request, state and passages included, so equal requests get equal answers, as with a seeded
    generator. Delete the file to clear the cache. Failures raise and are not cached; nor are answers that
    ``keep(request, text)`` rejects, or those to prompts that left too little room, since a server's context may grow.

    >>> import tempfile
    >>> class Echo:
    ...     def complete(self, requests):
    ...         return [request.prompt for request in requests]
    ...
    ...     def usage(self):
    ...         return {}
    >>> path = Path(tempfile.mkdtemp()) / "completions.sqlite"
    >>> request = Generate(prompt="Question: Where was Ada Brown born?\\n", stop=("</search>",))
    >>> first = CachedGenerator(Echo(), path).complete([request])
    >>> again = CachedGenerator(Echo(), path)
    >>> again.complete([request, request]) == first * 2, again.usage()
    (True, {'cached': 2.0})
    """

    def __init__(
        self, generator: Generator, path: Path, keep: Callable[[Generate, str], bool] = lambda request, text: True
    ) -> None:
        self.generator = generator
        """The generator for requests that are not in the cache."""
        self._table = SharedTable(path, f"{TABLE} (request TEXT PRIMARY KEY, text TEXT, cut INTEGER)")
        self._keep = keep
        self._cached = self._prompts = self._cut = 0

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; only distinct requests outside the cache are sent.

        Raises:
            ParamsError: more than half of all prompts so far, at least ``MANY``, left too little room to answer.
            Also whatever the generator raises.
        """
        keys = [fingerprint([r.messages, r.prompt, r.stop]) for r in requests]
        distinct = dict(zip(keys, requests, strict=True))
        cached_texts = self._table.do(lambda store: self._look_up(store, list(distinct)))
        texts = {key: text for key, text in cached_texts.items() if self._keep(distinct[key], text)}
        missing = [key for key in distinct if key not in texts]
        self._cached += sum(key in texts for key in keys)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            new = dict(zip(batch, self.generator.complete([distinct[key] for key in batch]), strict=True))
            accepted = {key: text for key, text in new.items() if self._keep(distinct[key], text)}
            self._remember({key: text for key, text in accepted.items() if not isinstance(text, ContextFull)})
            texts |= new
        self._check_lengths(distinct, texts)
        return [texts[key] for key in keys]

    def _check_lengths(self, requests: Mapping[str, Generate], texts: Mapping[str, str]) -> None:
        """Raise if most prompts leave too little room.

        An episode counts up to its first such prompt, since later ones are longer still.
        """
        counted = [
            key
            for key, request in requests.items()
            if not any(isinstance(t.completion, ContextFull) for t in request.past)
        ]
        cut = [text for key in counted if isinstance(text := texts[key], ContextFull)]
        self._prompts, self._cut = self._prompts + len(counted), self._cut + len(cut)
        if cut and self._prompts >= MANY and 2 * self._cut > self._prompts:
            raise ParamsError(
                f"{cut[0].reason}; {self._cut} of {self._prompts} prompts leave no room to answer; serve the model "
                "with a longer context, or lower its max_tokens, retriever.k or the limits in section pipeline"
            )

    def usage(self) -> Mapping[str, float]:
        """Return the generator's counts, and ``cached`` (requests not sent)."""
        return {**self.generator.usage(), "cached": float(self._cached)}

    def _look_up(self, store: sqlite3.Connection, keys: list[str]) -> dict[str, str]:
        """Return the cached completions by key."""
        texts: dict[str, str] = {}
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            marks = ",".join("?" * len(batch))
            for key, text, cut in store.execute(f"SELECT * FROM {TABLE} WHERE request IN ({marks})", batch):
                texts[key] = TruncatedCompletion(text) if cut else text
        return texts

    def _remember(self, texts: Mapping[str, str]) -> None:
        rows = [(key, text, isinstance(text, TruncatedCompletion)) for key, text in texts.items()]
        self._table.do(lambda store: store.executemany(f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?, ?)", rows))
