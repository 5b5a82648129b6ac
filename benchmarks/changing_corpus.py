"""A corpus that changes: `python -m benchmarks.changing_corpus 20000 --new 200 --gone 50 --changed 20`.

A fictional corpus is embedded and indexed, then changed, embedded and indexed again in the same place while a loop
searches. Prints how many passages were embedded and the seconds, whether the bytes equal those of a full run, whether a
removed passage is found, and the loop's searches and errors. Takes as long as three embeddings.
"""

import argparse
import contextlib
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from harr_encyclopaedia.world import make_world

from harr.corpus.passages import Passages, write_passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.files import SUMS, finish
from harr.io.model_folder import PACKAGED
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from harr.types import Passage

NEAREST = 5


class Loop(threading.Thread):
    """Searches for a corpus's passages until it is stopped; reopens the newest index on request."""

    def __init__(self, folder: Path, params: IndexParams) -> None:
        super().__init__(daemon=True)
        self.folder, self.params = folder, params
        self.stop, self.renew = threading.Event(), threading.Event()
        self.searches, self.errors = 0, list[str]()

    def run(self) -> None:
        """Search for one passage after the other."""
        with contextlib.ExitStack() as opened:
            while not self.stop.is_set():
                try:
                    if self.renew.is_set() or not self.searches:
                        self.renew.clear()
                        opened.close()
                        vectors = Vectors.open(self.folder / "vectors")
                        path = self.folder / "index"
                        index = opened.enter_context(PassageIndex.open(path, self.params, identity=vectors.identity))
                    row = self.searches * 7919 % vectors.rows
                    found, _ = index.search(vectors.take(np.array([row])), NEAREST)
                    assert found[0, 0] >= 0
                except Exception as error:
                    self.errors.append(repr(error))
                self.searches += 1
                time.sleep(0.01)


def changed(before: list[Passage], new: list[Passage], gone: int, other: int, seed: int = 0) -> list[Passage]:
    """Return a corpus without ``gone`` of its passages, with another text in ``other``, and the ``new`` mixed in."""
    drawn = random.Random(seed).sample(range(len(before)), gone + other)
    removed, edited = set(drawn[:gone]), set(drawn[gone:])
    kept = [
        replace(passage, text=f"{passage.text} It is closed today.") if row in edited else passage
        for row, passage in enumerate(before)
        if row not in removed
    ]
    half = len(kept) // 2
    return kept[:half] + new + kept[half:]


def run(
    count: int, new: int, gone: int, other: int, folder: Path, embed: EmbedParams, index: IndexParams
) -> dict[str, float]:
    """Return the figures, starting with ``count`` passages."""
    made = list(make_world(count + new, 0).passages())
    before = made[:count]
    after = changed(before, made[count : count + new], gone, other)
    encoder, figures = Encoder(PACKAGED, max_tokens=64), dict[str, float]()
    first = _stages("first", before, folder, folder, encoder, embed, index, figures)
    removed = _vectors_of({passage.id for passage in before} - {passage.id for passage in after}, first, folder)
    loop = Loop(folder, index)
    loop.start()
    while not loop.searches:
        time.sleep(0.01)
    second = _stages("again", after, folder, folder, encoder, embed, index, figures)
    figures["searches_beside"] = loop.searches
    loop.renew.set()
    seen = loop.searches
    while loop.searches < seen + 20:
        time.sleep(0.01)
    loop.stop.set()
    loop.join()
    figures |= {"searches": loop.searches, "search_errors": len(loop.errors)}
    with PassageIndex.open(folder / "index", index, identity=Vectors.open(folder / "vectors").identity) as opened:
        rows = opened.search(removed[1], NEAREST)[0]
        found = {passage.id for passage in second.take(sorted({int(row) for row in rows.ravel() if row >= 0}))}
        figures |= {"removed_found": len(found & removed[0]), "rows": opened.rows, "rows_expected": len(after)}
    full = _stages("full", after, folder / "full", folder / "full", encoder, embed, None, figures)
    figures["bytes_equal"] = float(
        _sums(folder / "vectors") == _sums(folder / "full/vectors") and len(full) == len(after)
    )
    figures["embed_share"] = figures["again_embed_seconds"] / figures["first_embed_seconds"]
    return figures


def _stages(
    name: str,
    passages: list[Passage],
    folder: Path,
    out: Path,
    encoder: Encoder,
    embed: EmbedParams,
    index: IndexParams | None,
    figures: dict[str, float],
) -> Passages:
    """Embed and index a corpus in a folder, and record the seconds."""
    write_passages(passages, folder / name)
    corpus = Passages.open(folder / name)
    for stage, work in _timed(name, figures, ["embed"] + ["index"] * (index is not None)):
        if stage == "embed":
            embedded = embed_corpus(corpus, encoder, embed, out / "vectors", folder / work)
            figures |= {f"{name}_embedded": embedded["embedded"], f"{name}_reused": embedded["reused"]}
        elif index is not None:
            built = build_index(corpus, Vectors.of(corpus, out / "vectors"), index, out / "index", folder / work)
            figures[f"{name}_inserted"] = built["inserted"]
        finish(folder / work)
    return corpus


def _timed(name: str, figures: dict[str, float], stages: list[str]) -> Iterator[tuple[str, str]]:
    for stage in stages:
        began = time.monotonic()
        yield stage, f"work-{stage}"
        figures[f"{name}_{stage}_seconds"] = time.monotonic() - began


def _vectors_of(ids: set[str], passages: Passages, folder: Path) -> tuple[set[str], np.ndarray]:
    rows = passages.rows_of(ids)
    return ids, Vectors.of(passages, folder / "vectors").take(np.array(sorted(rows.values())))


def _sums(folder: Path) -> str:
    return (folder / SUMS).read_text()


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", type=int, nargs="?", default=20_000)
    for name, count in (("new", 200), ("gone", 50), ("changed", 20)):
        parser.add_argument(f"--{name}", type=int, default=count)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = run(asked.passages, asked.new, asked.gone, asked.changed, Path(folder), EmbedParams(), IndexParams())
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
