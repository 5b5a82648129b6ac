"""A cache of completions on disk, which later stages and resumed runs share."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from harr.errors import ParamsError
from harr.io.files import fingerprint
from harr.io.shared_table import SharedTable
from harr.types import ContextFull, Generate, Generator, TruncatedCompletion

BATCH = 512
"""Number of new completions per write: a kill or a dead server loses no more."""
TABLE, COLUMNS = "replies_hashed", "(request TEXT PRIMARY KEY, text TEXT, cut INTEGER, hash TEXT)"
"""The table and its columns; files of earlier versions have one without hashes, ``replies``, which is not read."""
Row = tuple[str, str, bool, str]
MANY = 8
"""Minimum number of prompts before the check that at most half leave too little room."""


class CachedGenerator:
    """A generator with a cache; ``path`` belongs to one model with one seed and one set of sampling parameters.

    The key is the whole request, the state and the passages, so equal requests have equal answers, as with a seeded
    generator. Delete the file to clear the cache. Failures raise and are not cached; neither are answers that
    ``keep(request, text)`` refuses, nor those to a prompt that left too little room, since a server may get a longer
    context.

    >>> import tempfile
    >>> from harr.datasets.world.people_player import Scripted
    >>> path = Path(tempfile.mkdtemp()) / "completions.sqlite"
    >>> request = Generate(prompt="Question: Where was Ada Brown born?\\n", stop=("</search>",))
    >>> first = CachedGenerator(Scripted(), path).complete([request])
    >>> again = CachedGenerator(Scripted(), path)
    >>> again.complete([request, request]) == first * 2, again.usage()
    (True, {'requests': 0.0, 'cached': 2.0})
    """

    def __init__(
        self, generator: Generator, path: Path, keep: Callable[[Generate, str], bool] = lambda request, text: True
    ) -> None:
        self.generator = generator
        """The generator for requests that are not in the cache."""
        self._table, self._cached, self._keep = SharedTable(path, f"{TABLE} {COLUMNS}"), 0, keep
        self._prompts = self._cut = self._damaged = 0

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; only distinct requests outside the cache are sent.

        Raises:
            ParamsError: of all prompts so far, ``MANY`` at least, more than half left too little room to answer.
                And whatever the generator raises.
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
            self._remember([_row(key, text) for key, text in accepted.items() if not isinstance(text, ContextFull)])
            texts |= new
        self._check_lengths(distinct, texts)
        return [texts[key] for key in keys]

    def _check_lengths(self, requests: Mapping[str, Generate], texts: Mapping[str, str]) -> None:
        """Stop if most prompts leave too little room; an episode counts until its first such prompt, since later ones
        are longer still."""
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
        """Return generator's counts, ``cached`` (requests not sent) and ``damaged``, if there were such completions."""
        damaged = {"damaged": float(self._damaged)} if self._damaged else {}
        return {**self.generator.usage(), "cached": float(self._cached), **damaged}

    def _look_up(self, store: sqlite3.Connection, keys: list[str]) -> dict[str, str]:
        """Return the undamaged completions of the cache."""
        texts: dict[str, str] = {}
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            marks = ",".join("?" * len(batch))
            for row in store.execute(f"SELECT request, text, cut, hash FROM {TABLE} WHERE request IN ({marks})", batch):
                key, text, cut, _ = row
                if row == _row(key, TruncatedCompletion(text) if cut else text):
                    texts[key] = TruncatedCompletion(text) if cut else text
                    continue
                if not self._damaged:
                    tqdm.write(
                        f"{self._table.path}: a completion is damaged (its hash differs); such are requested again"
                    )
                self._damaged += 1
        return texts

    def _remember(self, rows: Sequence[Row]) -> None:
        statement = f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?, ?, ?)"
        self._table.do(lambda store: store.executemany(statement, rows))


def _row(key: str, text: str) -> Row:
    """Return a completion as a row of the table."""
    cut = isinstance(text, TruncatedCompletion)
    return key, text, cut, fingerprint([key, text, cut])
