"""Questions from the log of `harr serve`: what users asked, what was drawn for them, and what they took.

``download: {dataset: function, function: "harr_traffic.questions:DATASET", settings: {...}}`` reads them.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

from pydantic import Field

from harr.datasets import Dataset
from harr.datasets.local import passage_of
from harr.datasets.source import Source
from harr.errors import CorpusError, ParamsError
from harr.io.files import fingerprint
from harr.io.jsonl import read_rows
from harr.params.download import QuestionsParams
from harr.params.fields import NonEmpty, PathOrName
from harr.types import Passage, Question
from harr_traffic.log import Feedback, LoggedSearch, read_log

CHOICES = "choices"
"""Note of a question: the searches that were drawn for users who asked it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A search that was drawn for a user, and how it went: ``score``, 0 to 1.

    ``reads`` says what the ``state`` contains (``harr/rag/policies/state.py``). ``pool`` has the ids of all candidates,
    of which the first ``chosen`` were returned. The first ``kept`` of these were the best and not drawn; ``logprob``
    (nats) is of the others, given these, under the model that drew.
    """

    reads: str
    state: str
    pool: tuple[str, ...]
    chosen: int
    logprob: float
    score: float
    kept: int = 0


class TrafficParams(QuestionsParams):
    """What users asked of `harr serve`, with what they took as gold (``download.settings``)."""

    passages: NonEmpty[PathOrName]
    """Files with the passages that were searched, as for dataset jsonl."""
    log: PathOrName
    """Folder of the log."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of the questions, by a hash of their text, that are not trained on: those with gold are the test questions,
    and `harr replay` and the gate judge by all of them."""


def traffic(params: TrafficParams) -> Source:
    """Open passages and a log; one question for every text that was asked and has an outcome.

    Its gold is what users clicked, or the one passage that they accepted; its choices are the searches that explored.
    ``test_share`` of the questions, by a hash of their text, are never trained on, so a question keeps its split when
    the log grows; those with gold are test questions. Searches of passages that the corpus no longer has are left out
    and counted.

    Raises:
        ParamsError: there is no log, or it has no texts. DamagedFile: a line is damaged or foreign. CorpusError: most
            of the log is of another corpus.
    """
    logged, outcomes = read_log(Path(params.log))
    searches = [one for one in logged if one.question]
    if not searches:
        raise ParamsError(f"download.settings.log {params.log} has no questions (texts=no); log them")
    known: set[str] = set()
    figures = {"searches_logged": float(len(logged)), "searches_of_other_passages": 0.0}

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
        if 2 * lost > (judged := sum(one.id in outcomes for one in searches)):
            raise CorpusError(
                f"{lost:,} of {judged:,} searches in {params.log} are of passages that this corpus does not have; name "
                "the passages that were searched (download.settings.passages)"
            )
        for text, rows in asked.items():
            question = _question(text, rows)
            is_test = crc32(question.id.encode()) % 1000 < 1000 * params.test_share
            if is_test == test and (question.gold_ids or (question.notes and not test)):
                yield question

    return Source(passages=passages(), train=questions(False), test=questions(True), figures=figures)


DATASET = Dataset(traffic, lambda params: f"what users asked, in the log {params.log}", settings=TrafficParams)


def choices_of(question: Question) -> list[Drawn]:
    """Return the searches that were drawn for users who asked a question."""
    return [Drawn(**{**one, "pool": tuple(one["pool"])}) for one in question.notes.get(CHOICES, ())]


def _question(text: str, rows: list[tuple[LoggedSearch, Feedback]]) -> Question:
    gold = dict.fromkeys(name for one, outcome in rows for name in _taken(one, outcome))
    choices = [
        Drawn(one.reads, one.state, one.pool, len(one.chosen), one.logprob, outcome.score, one.kept)
        for one, outcome in rows
        if one.logprob is not None and one.pool and one.state
    ]
    notes = {CHOICES: [asdict(one) for one in choices]} if choices else {}
    return Question(f"t{fingerprint({'question': text})}", text, gold_ids=tuple(gold), kind="traffic", notes=notes)


def _taken(one: LoggedSearch, outcome: Feedback) -> tuple[str, ...]:
    """Return the passages that a user took: those clicked, or the only one of an accepted search."""
    accepted = one.chosen if len(one.chosen) == 1 and outcome.score >= 0.5 else ()
    return tuple(name for name in outcome.clicked if name in one.chosen) or accepted
