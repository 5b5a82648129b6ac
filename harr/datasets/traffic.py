"""Questions from the log of `harr serve`: what users asked, what was drawn for them, and what they took."""

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from harr.datasets.local import passage_of
from harr.datasets.source import Source
from harr.errors import CorpusError, ParamsError
from harr.io.files import fingerprint
from harr.io.jsonl import read_rows
from harr.params.download import TrafficParams
from harr.serve.log import Feedback, LoggedSearch, read_log
from harr.types import Drawn, Passage, Question


def traffic(params: TrafficParams) -> Source:
    """Open passages and a log; one question for every text that was asked and has an outcome.

    Its gold is what users clicked, or the one passage that they accepted; its choices are the searches that explored.
    ``test_share`` of the questions are never learnt from, by a hash of their text, so that a question stays where it is
    when the log grows; those of them with gold are test questions. Searches of passages that the corpus has no more are
    left out and counted.

    Raises:
        ParamsError: there is no log, or it has no texts. DamagedFile: a line of it is none of ours. CorpusError: most
            of it is of another corpus.
    """
    searches, outcomes = read_log(Path(params.log))
    if not all(one.question for one in searches):
        raise ParamsError(f"download.log {params.log} has no questions (harr serve --no-log-texts); log them")
    known: set[str] = set()
    figures = {"searches_logged": float(len(searches)), "searches_of_other_passages": 0.0}

    def passages() -> Iterator[Passage]:
        for path in params.passages:
            for row in read_rows(Path(path)):
                passage = passage_of(row)
                known.add(passage.id)
                yield passage

    def questions(test: bool) -> Iterator[Question]:
        asked: dict[str, list[tuple[LoggedSearch, Feedback]]] = {}
        lost = 0
        for one in searches:
            if one.id in outcomes:
                whole = known.issuperset({*one.pool, *one.chosen})
                lost += not whole
                if whole:
                    asked.setdefault(one.question, []).append((one, outcomes[one.id]))
        figures["searches_of_other_passages"] = float(lost)
        if 2 * lost > (told := sum(one.id in outcomes for one in searches)):
            raise CorpusError(
                f"{lost:,} of {told:,} searches in {params.log} are of passages that this corpus does not have; name "
                "the passages that were searched (download.passages)"
            )
        for text, rows in asked.items():
            question = _question(text, rows)
            held = crc32(question.id.encode()) % 1000 < 1000 * params.test_share
            if held == test and (question.gold_ids or (question.choices and not test)):
                yield question

    return Source(passages=passages(), train=questions(False), test=questions(True), figures=figures)


def _question(text: str, rows: list[tuple[LoggedSearch, Feedback]]) -> Question:
    gold = dict.fromkeys(name for one, outcome in rows for name in _taken(one, outcome))
    choices = tuple(
        Drawn(one.reads, one.state, one.pool, len(one.chosen), one.logprob, outcome.score, one.kept)
        for one, outcome in rows
        if one.logprob is not None and one.pool and one.state
    )
    return Question(f"t{fingerprint({'question': text})}", text, gold_ids=tuple(gold), kind="traffic", choices=choices)


def _taken(one: LoggedSearch, outcome: Feedback) -> tuple[str, ...]:
    """Return the passages that a user took: those clicked, or the only one of a search that was accepted."""
    accepted = one.chosen if len(one.chosen) == 1 and outcome.score >= 0.5 else ()
    return tuple(name for name in outcome.clicked if name in one.chosen) or accepted
