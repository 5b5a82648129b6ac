"""Completions that were given before are not asked for again, not even by a later stage or after a kill."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from harr.errors import ParamsError
from harr.files import fingerprint
from harr.types import Cut, Generate, Generator, TooLong

BATCH = 512
"""So many new completions are kept at a time: a kill or a dead server loses no more."""
MANY = 8
"""From so many prompts on not more than half may be too long."""


class CachedGenerator:
    """A generator that remembers; ``path`` belongs to one model with one seed and one set of sampling parameters.

    A request is the whole text that the model would read: the state and the passages shown. Equal requests have
    equal answers, as those of a seeded generator have anyway. Delete the file to ask anew. A failure is an error and
    leaves nothing behind; an answer that ``keep(request, text)`` refuses is given, but asked for anew the next time,
    and so is that to a prompt that was too long: a server may be given a longer context.

    >>> import tempfile
    >>> from harr.generation.scripted import Scripted
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
        path.parent.mkdir(parents=True, exist_ok=True)
        self.generator = generator
        """What is asked where nothing is remembered."""
        self._path, self._cached, self._keep = path, 0, keep
        self._prompts = self._long = 0
        with closing(self._open()) as store:
            columns = "request TEXT PRIMARY KEY, text TEXT, cut INTEGER"
            store.execute(f"CREATE TABLE IF NOT EXISTS replies ({columns}) WITHOUT ROWID")

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        """Return one completion per request, in order; only unknown ones are asked for, and those once.

        Raises:
            ParamsError: of all prompts so far, ``MANY`` at least, more than half were longer than the model reads.
                And whatever the generator raises.
        """
        keys = [fingerprint([request.messages, request.prompt, request.stop]) for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        with closing(self._open()) as store:
            known = self._known(store, list(distinct))
            texts = {key: text for key, text in known.items() if self._keep(distinct[key], text)}
            missing = [key for key in distinct if key not in texts]
            self._cached += sum(key in texts for key in keys)
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                new = dict(zip(batch, self.generator.complete([distinct[key] for key in batch]), strict=True))
                with store:
                    kept = {key: text for key, text in new.items() if self._keep(distinct[key], text)}
                    rows = [(k, text, isinstance(text, Cut)) for k, text in kept.items() if type(text) is not TooLong]
                    store.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", rows)
                texts |= new
        self._check_lengths(distinct, texts)
        return [texts[key] for key in keys]

    def _check_lengths(self, asked: Mapping[str, Generate], texts: Mapping[str, str]) -> None:
        """An episode counts until its first prompt that is too long: what is asked after it is longer still."""
        open_ = [key for key, request in asked.items() if not any(type(t.completion) is TooLong for t in request.past)]
        long = [text for key in open_ if isinstance(text := texts[key], TooLong)]
        self._prompts, self._long = self._prompts + len(open_), self._long + len(long)
        if long and self._prompts >= MANY and 2 * self._long > self._prompts:
            raise ParamsError(
                f"{long[0].said}; {self._long} of {self._prompts} prompts are longer than the model reads; serve it "
                "with a longer context, or lower its max_tokens, retriever.k or the limits in section pipeline"
            )

    def usage(self) -> Mapping[str, float]:
        """As the generator counts, and ``cached``: requests that were not sent."""
        return {**self.generator.usage(), "cached": float(self._cached)}

    def _open(self) -> sqlite3.Connection:
        """A connection of its own for every call: stages of one run share the file."""
        return sqlite3.connect(self._path, timeout=60.0)

    @staticmethod
    def _known(store: sqlite3.Connection, keys: list[str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            marks = ",".join("?" * len(batch))
            rows = store.execute(f"SELECT request, text, cut FROM replies WHERE request IN ({marks})", batch)
            texts |= {key: Cut(text) if cut else text for key, text, cut in rows}
        return texts
