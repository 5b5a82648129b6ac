"""A judged corpus: questions without answers, each with its relevant passages."""

from collections.abc import Callable, Iterator, Mapping

from harr.corpus.sample import draw_questions
from harr.datasets.source import Source
from harr.datasets.splits import rows_to_read
from harr.errors import CorpusError
from harr.io.jsonl import fold
from harr.params.download import DrawnParams
from harr.params.fields import PathOrName
from harr.types import Passage, Question

Judgements = dict[str, dict[str, int]]
"""The grade of every judged passage, by question and passage."""
Split = Callable[[str], tuple[Mapping[str, str], Judgements]]
"""Function that returns the texts of a split's questions, and their judgements."""


class JudgedParams(DrawnParams):
    """A corpus with judgements, possibly graded."""

    train: PathOrName = "train"
    """Name of the judged split to train on."""
    test: PathOrName = "test"
    """Name of the judged split to test on."""
    validation: str = ""
    """Name of the judged split for validation, of which validation_questions are drawn (0: all); if empty, they are
    drawn from the training questions."""


def open_judged(params: JudgedParams, texts: Iterator[tuple[str, str, str]], split: Split) -> Source:
    """Return the passages of ``texts``, each id, title and text, and the questions that a ``split`` judges.

    Raises:
        CorpusError: a judged query is missing.
    """
    left_out: list[str] = []
    figures: dict[str, float] = {}

    def passages() -> Iterator[Passage]:
        for name, title, text in texts:
            title, text = fold(title), fold(text)
            if title or text:  # a passage with only a title is that title
                yield Passage(name, text or title, title if text else "")
            else:
                left_out.append(f"passage {name} has neither title nor text")

    def questions(part: str, name: str, count: int) -> Iterator[Question]:
        queries, judged = split(name)
        kept = []
        for qid, grades in judged.items():
            gold = {pid: grade for pid, grade in sorted(grades.items(), key=lambda own: -own[1]) if grade > 0}
            if gold and qid not in queries:
                raise CorpusError(f"download: {name} judges query {qid}, which is not among the queries")
            if gold:
                text = fold(queries[qid])
                kept.append(Question(qid, text, gold_ids=tuple(gold), grades=tuple(gold.values()), kind="judged"))
        figures[f"{part}_queries_without_relevant_passages"] = float(len(judged) - len(kept))
        yield from draw_questions(kept, count, params.seed) if count else kept

    own = questions("validation", params.validation, params.validation_questions) if params.validation else None
    count = params.train_questions if params.validation else rows_to_read(params)
    return Source(
        passages=passages(),
        train=questions("train", params.train, count),
        test=questions("test", params.test, params.test_questions),
        validation=own,
        figures=figures,
        left_out=left_out,
    )
