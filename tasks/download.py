"""Stage download: corpus and questions on disk, checked."""

from collections import Counter

import pandas as pd

from harr.params import Params
from tasks.common import even_sample
from tasks.expectations.process import expect
from tasks.paths import CORPUS, QUESTIONS, WORK
from tasks.runtime.stage import main
from tasks.tracking.run import Run

SPLITS = ("train", "validation", "test")


def download_corpus(params: Params) -> dict[str, float]:
    """Fetch or make the passages and questions named in params.yaml."""
    from harr.datasets.download import download

    return download(params.download, CORPUS, QUESTIONS, WORK / "download")


def corpus_frame() -> pd.DataFrame:
    """Return passages (of a large corpus, an even sample) as a table for the suite ``corpus``."""
    from harr.corpus.passages import Passages

    passages = Passages.open(CORPUS)
    rows = even_sample(len(passages)).tolist()
    sample = passages.take(rows)
    return pd.DataFrame(
        {
            "row": rows,
            "id": [passage.id for passage in sample],
            "text": [passage.text for passage in sample],
            "words": [len(passage.text.split()) for passage in sample],
        }
    )


def questions_frame(params: Params) -> pd.DataFrame:
    """Return the questions of all splits as a table for the suite ``questions``.

    ``gold_elsewhere`` counts a question's gold passages that are gold in another split, if the data set promises none.
    """
    from harr.corpus.passages import Passages, read_questions
    from harr.datasets import dataset_of

    passages = Passages.open(CORPUS)
    splits = {split: read_questions(QUESTIONS / f"{split}.jsonl") for split in SPLITS}
    gold_rows = passages.rows_of({pid for questions in splits.values() for q in questions for pid in q.gold_ids})
    splits_of = Counter(name for questions in splits.values() for name in {q.identity for q in questions})
    apart = dataset_of(params.download)[0].apart
    gold = Counter(pid for questions in splits.values() for pid in {pid for q in questions for pid in q.gold_ids})
    return pd.DataFrame(
        {
            "split": split,
            "id": question.id,
            "question": question.text,
            "targets": len(question.answers) + len(question.gold_ids) + len(question.notes),
            "missing_gold": sum(pid not in gold_rows for pid in question.gold_ids),
            "in_other_split": splits_of[question.identity] > 1,
            "gold_elsewhere": sum(apart and gold[pid] > 1 for pid in question.gold_ids),
        }
        for split, questions in splits.items()
        for question in questions
    )


def download(params: Params, run: Run) -> None:
    """Fetch or make the corpus and its questions, and check them."""
    figures = download_corpus(params)
    counts = expect("corpus", corpus_frame()) | expect("questions", questions_frame(params))
    run.record("download", figures | counts)
    run.dataset("corpus", CORPUS, "corpus")
    run.dataset("questions", QUESTIONS, "questions")


if __name__ == "__main__":
    main("download", download, checks=True)
