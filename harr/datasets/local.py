"""The data sets of this machine: the fictional encyclopaedia, which is made, and files of the user's own."""

from collections.abc import Iterator
from pathlib import Path
from reprlib import repr as short

from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.io.jsonl import Row, passage_of, read_questions_where, read_rows
from harr.params.download import JsonlParams, WorldParams
from harr.types import Passage
from harr.world.world import make_world


def world(params: WorldParams) -> Source:
    """The fictional encyclopaedia; training and test questions never share a chain."""
    made = make_world(params.passages, params.seed)
    return Source(
        passages=made.passages(sources=params.sources),
        train=made.questions("train", params.train_questions, params.hops),
        test=made.questions("test", params.test_questions, params.hops),
    )


def jsonl(params: JsonlParams) -> Source:
    """Local files; ``searchable_where`` keeps the other passages out of the index.

    Up to ``bad_passages`` rows that are no passages are left out and noted.
    """
    held_back: set[str] = set()
    left_out: list[str] = []
    seen: set[str] = set()

    def leave_out(error: CorpusError) -> None:
        """Note a passage that cannot be used, as long as there are few."""
        if not params.bad_passages:
            raise error
        if len(left_out) == params.bad_passages:
            raise CorpusError(f"{error}; {len(left_out)} before it were left out, as many as download.bad_passages")
        left_out.append(str(error))

    def rows() -> Iterator[Row]:
        for path in params.passages:
            yield from read_rows(Path(path), leave_out)

    def passages() -> Iterator[Passage]:
        for row in rows():
            if row.matches(params.passages_where):
                try:
                    passage = passage_of(row)
                    if params.bad_passages and passage.id in seen:
                        raise CorpusError(f"{row.place}: passage id {short(passage.id)} stands twice")
                except CorpusError as error:
                    leave_out(error)
                    continue
                if params.bad_passages:
                    seen.add(passage.id)
                if not row.matches(params.searchable_where):
                    held_back.add(passage.id)
                yield passage

    return Source(
        passages=passages(),
        train=read_questions_where(params.train, params.train_where, params.train_questions),
        test=read_questions_where(params.test, params.test_where, params.test_questions),
        searchable=lambda passage: passage.id not in held_back,
        left_out=left_out,
    )
