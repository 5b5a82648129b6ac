"""Stage download: check a data set's passages and questions and write them to disk, all or nothing."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from reprlib import repr as short

from tqdm import tqdm

from harr.corpus.passages import Passages, write_passages, write_questions
from harr.datasets import dataset_of
from harr.datasets.question_checks import count_ungiven, drop_missing_gold, with_sound_answers
from harr.datasets.splits import divide
from harr.errors import CorpusError
from harr.io.files import publish, write_text
from harr.io.progress import bar
from harr.params.download import DatasetParams
from harr.types import Passage, Question


def download(params: DatasetParams, corpus: Path, questions: Path, work: Path) -> dict[str, float]:
    """Fetch or make a data set in the folder ``work``, check it, then publish ``corpus`` and ``questions``.

    No question is in two splits (same text; for stories, same story): training questions that are also validation or
    test questions are left out and counted, as are validation questions that are also test questions. The validation
    file is empty if no validation questions were requested.

    Returns:
        Counts of passages and questions, the mean passage length in words, and the data set's own figures.

    Raises:
        CorpusError: a file is missing or damaged, or a row is wrong; nothing is published.
    """
    shutil.rmtree(work, ignore_errors=True)
    dataset, section = dataset_of(params)
    source = dataset.load(section)
    words: list[int] = []
    with bar(source.passages, desc="passages", unit="passage") as stream:
        write_passages(unique_passages(stream, words), work / "corpus", searchable=source.searchable)
    if source.left_out:
        write_text(work / "corpus" / "left_out.txt", "".join(f"{line}\n" for line in source.left_out))
        message = f"accepted {len(words):,} passages; left out {len(source.left_out):,}, see {corpus / 'left_out.txt'}"
        tqdm.write(message)
    if not words:
        raise CorpusError("download: no passages; check download.passages in params.yaml")
    stored = Passages.open(work / "corpus")
    streams = {"test": source.test, "train": source.train, "validation": source.validation}
    sound = {split: with_sound_answers(items) for split, items in streams.items() if items is not None}
    questions_of = {split: items for split, (items, _) in sound.items()}
    gone: dict[str, float] = {}
    if getattr(params, "missing_gold", "") == "drop":
        questions_of, gone = _drop_missing_gold(questions_of, stored)
    checked = {split: check_questions(items, split, stored) for split, items in questions_of.items()}
    train, dev, test = checked["train"], checked.get("validation"), checked["test"]
    splits = divide(train, dev, test, params.validation_questions, getattr(section, "near_duplicates", ""))
    emptied = float(sum(count for _, count in sound.values()))
    odd = {"answers_of_no_word": emptied, "gold_not_given": float(count_ungiven([*train, *(dev or ()), *test]))}
    for line in _warnings(odd, splits.figures):
        tqdm.write(line)
    for split in ("train", "validation", "test"):
        write_questions(splits.of(split)[0], work / "questions" / f"{split}.jsonl")
    publish(work / "corpus", corpus)
    publish(work / "questions", questions)
    shutil.rmtree(work, ignore_errors=True)
    return {
        "passages": float(len(words)),
        "searchable": float(len(stored.searchable_rows())),
        "words_per_passage": sum(words) / len(words),
        **splits.figures,
        **gone,
        **{name: count for name, count in odd.items() if count},
        **({"left_out": float(len(source.left_out))} if source.left_out else {}),
        **source.figures,
    }


def _drop_missing_gold(
    questions: Mapping[str, Sequence[Question]], passages: Passages
) -> tuple[dict[str, list[Question]], dict[str, float]]:
    """Return the questions whose gold passages all exist, by split, and counts of the others, which are printed."""
    named = passages.rows_of({pid for items in questions.values() for q in items for pid in q.gold_ids})
    kept, gone = drop_missing_gold(questions, named)
    for split, ids in gone.items():
        what = f"left out {len(ids):,} {split} questions with a gold passage that is not in the corpus"
        tqdm.write(f"{what} (first: {short(ids[0])})")
    return kept, {f"{split}_questions_without_their_passages": float(len(ids)) for split, ids in gone.items()}


def _warnings(odd: Mapping[str, float], figures: Mapping[str, float]) -> Iterator[str]:
    """Yield warnings about the questions, one line each."""
    if count := odd["answers_of_no_word"]:
        yield f"{count:,.0f} questions have an answer of no word (empty, or an article alone), which is not scored"
    if count := odd["gold_not_given"]:
        yield f"{count:,.0f} questions name gold passages that are not among their context_ids: there nobody finds them"
    if count := figures.get("train_questions_near_test", 0.0):
        yield f"{count:,.0f} training questions are nearly test questions; download.near_duplicates: drop drops them"


def unique_passages(passages: Iterable[Passage], words: list[int]) -> Iterator[Passage]:
    """Yield the passages, appending their word counts to ``words``; refuse a repeated id.

    Raises:
        CorpusError: an id is repeated (names it and both positions), or only some of the passages have a source.
    """
    seen: dict[str, int] = {}
    sourced = True
    for position, passage in enumerate(passages, 1):
        sourced = bool(passage.source) if position == 1 else sourced
        if bool(passage.source) != sourced:
            has, others = ("a", "none") if passage.source else ("no", "one")
            raise CorpusError(
                f"download: passage {short(passage.id)} has {has} source, those before it have {others}; "
                "give every passage a source, or none"
            )
        first = seen.setdefault(passage.id, position)
        if first != position:
            raise CorpusError(
                f"download: passage id {short(passage.id)} stands twice, as passages {first} and {position} of the "
                "input; ids must be unique over all files"
            )
        words.append(len(passage.text.split()))
        yield passage


def check_questions(questions: Iterable[Question], split: str, passages: Passages) -> list[Question]:
    """Return all questions of a split, checking that ids are unique and passages exist.

    Raises:
        CorpusError: there is no question, two share an id, one has neither answers nor gold passages, or one names a
            passage that is not in the corpus.
    """
    by_id: dict[str, Question] = {}
    for question in questions:
        if question.id in by_id:
            raise CorpusError(f"download: question id {short(question.id)} stands twice in the {split} questions")
        if not (question.answers or question.gold_ids or (question.notes and split == "train")):
            raise CorpusError(
                f"download: {split} question {short(question.id)} has neither answers nor supporting passages"
            )
        by_id[question.id] = question
    if not by_id:
        raise CorpusError(f"download: no {split} questions; check download.{split} and download.{split}_where")
    _check_known({q.id: q.gold_ids for q in by_id.values()}, "supporting", split, passages)
    _check_known({q.id: q.candidate_ids for q in by_id.values()}, "context_ids", split, passages)
    return list(by_id.values())


def _check_known(ids_by_question: Mapping[str, tuple[str, ...]], field: str, split: str, passages: Passages) -> None:
    rows = passages.rows_of({pid for ids in ids_by_question.values() for pid in ids})
    missing = [(qid, pid) for qid, ids in ids_by_question.items() for pid in ids if pid not in rows]
    if missing:
        qid, pid = missing[0]
        setting = " (download.missing_gold: drop)" if field == "supporting" else ""
        raise CorpusError(
            f"download: {len(missing)} {field} ids of {split} questions are not in the corpus "
            f"(first: question {short(qid)} names {short(pid)}); add the passages or drop the questions{setting}"
        )
