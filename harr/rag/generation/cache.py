"""Completions that were given before are not asked for again, not even by a later stage or after a kill."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from harr.errors import ParamsError
from harr.io.files import fingerprint
from harr.io.shared_table import SharedTable
from harr.types import ContextFull, Generate, Generator, TruncatedCompletion

BATCH = 512
"""Number of new completions that are kept at a time: a kill or a dead server loses no more."""
TABLE, COLUMNS = "replies_hashed", "(request TEXT PRIMARY KEY, text TEXT, cut INTEGER, hash TEXT)"
"""The table and its columns; files of earlier versions have one without hashes, ``replies``, which is not read."""
Row = tuple[str, str, bool, str]
MANY = 8
"""Number of prompts from which on not more than half may leave too little room."""


class CachedGenerator:
    """A generator that remembers; ``path`` belongs to one model with one seed and one set of sampling parameters.

    A request is the whole text that the model would read: the state and the passages shown. Equal requests have
    equal answers, as those of a seeded generator have anyway. Delete the file to ask anew. A failure is an error and
    leaves nothing behind; an answer that ``keep(request, text)`` refuses is given, but asked for anew the next time,
    and so is that to a prompt that left too little room: a server may be given a longer context.

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
        """The generator that is asked where nothing is remembered."""
        self._table, self._cached, self._keep = SharedTable(path, f"{TABLE} {COLUMNS}"), 0, keep
        self._prompts = self._long = self._damaged = 0

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; only unknown ones are asked for, and those once.

        Raises:
            ParamsError: of all prompts so far, ``MANY`` at least, more than half left too little room to answer.
                And whatever the generator raises.
        """
        keys = [
            fingerprint([r.messages, r.prompt, r.stop, *([r.max_tokens] if r.max_tokens else [])]) for r in requests
        ]
        distinct = dict(zip(keys, requests, strict=True))
        known = self._table.do(lambda store: self._look_up(store, list(distinct)))
        texts = {key: text for key, text in known.items() if self._keep(distinct[key], text)}
        missing = [key for key in distinct if key not in texts]
        self._cached += sum(key in texts for key in keys)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            new = dict(zip(batch, self.generator.complete([distinct[key] for key in batch]), strict=True))
            kept = {key: text for key, text in new.items() if self._keep(distinct[key], text)}
            self._remember([_row(key, text) for key, text in kept.items() if not isinstance(text, ContextFull)])
            texts |= new
        self._check_lengths(distinct, texts)
        return [texts[key] for key in keys]

    def _check_lengths(self, asked: Mapping[str, Generate], texts: Mapping[str, str]) -> None:
        """Stop where most prompts leave too little room; an episode counts until its first such prompt: what is asked
        after it is longer still."""
        open_ = [
            key
            for key, request in asked.items()
            if not any(isinstance(t.completion, ContextFull) for t in request.past)
        ]
        long = [text for key in open_ if isinstance(text := texts[key], ContextFull)]
        self._prompts, self._long = self._prompts + len(open_), self._long + len(long)
        if long and self._prompts >= MANY and 2 * self._long > self._prompts:
            raise ParamsError(
                f"{long[0].reason}; {self._long} of {self._prompts} prompts leave no room to answer; serve the model "
                "with a longer context, or lower its max_tokens, retriever.k or the limits in section pipeline"
            )

    def usage(self) -> Mapping[str, float]:
        """Return generator's counts, ``cached`` (requests not sent) and ``damaged``, if there were such completions."""
        damaged = {"damaged": float(self._damaged)} if self._damaged else {}
        return {**self.generator.usage(), "cached": float(self._cached), **damaged}

    def _look_up(self, store: sqlite3.Connection, keys: list[str]) -> dict[str, str]:
        """Return what is remembered and whole."""
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
                        f"{self._table.path}: a completion is damaged (its hash differs); such are asked for anew"
                    )
                self._damaged += 1
        return texts

    def _remember(self, rows: Sequence[Row]) -> None:
        statement = f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?, ?, ?)"
        self._table.do(lambda store: store.executemany(statement, rows))


def _row(key: str, text: str) -> Row:
    """Return a completion as it is kept."""
    cut = isinstance(text, TruncatedCompletion)
    return key, text, cut, fingerprint([key, text, cut])
