"""The benchmarks in the hub's own file formats, and wiki18.

The hub's client checks every file by hash and resumes a broken download. Without a network, a folder with the same
files (setting ``root``) replaces it.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from tqdm import tqdm

from harr.corpus.sample import draw_rows
from harr.datasets import Dataset
from harr.datasets.source import Source
from harr.datasets.splits import rows_to_read
from harr.errors import CorpusError, one_line
from harr.io.jsonl import Row, read_rows
from harr.params.download import DrawnParams
from harr.types import Passage, Question
from harr_open_domain.settings import GivenParams, HotpotParams, OpenParams

FLASHRAG = "RUC-NLPIR/FlashRAG_datasets"
FILES = {
    "hotpotqa": ("hotpotqa/hotpot_qa", "distractor/train*.parquet", "distractor/validation*.parquet"),
    "2wikimultihopqa": ("framolfese/2WikiMultihopQA", "data/train*.parquet", "data/validation*.parquet"),
    "musique": ("dgslibisey/MuSiQue", "musique_ans_v1.0_train.jsonl", "musique_ans_v1.0_dev.jsonl"),
    "nq": (FLASHRAG, "nq/train.jsonl", "nq/dev.jsonl"),
    "triviaqa": (FLASHRAG, "triviaqa/train.jsonl", "triviaqa/dev.jsonl"),
}
"""Repository, training files, test files; a benchmark's development split is our test split."""
WIKI18 = ("PeterJinGo/wiki-18-corpus", "wiki-18.jsonl.gz")

Read = tuple[Question, list[Passage]]


def open_splits(
    name: str, params: DrawnParams, convert: Callable[[Row], Read], *, root: str, levels: tuple[str, ...] = ()
) -> tuple[Callable[[], Iterator[Read]], Callable[[], Iterator[Read]]]:
    """Return functions that read the training and test rows of a benchmark, as many as the settings ask for.

    Args:
        name: name of the benchmark in FILES.
        params: how many rows, and the seed of the draw.
        convert: function from a row to a question and its passages.
        root: folder of the hub's files; "" downloads them.
        levels: levels of training questions; all if empty.
    """
    repository, train, test = FILES[name]

    def read(pattern: str, limit: int, levels: tuple[str, ...]) -> Iterator[Read]:
        rows = chain.from_iterable(map(read_rows, fetch(repository, pattern, root)))
        matching = (row for row in rows if not levels or row.values.get("level") in levels)
        return (convert(row) for row in draw_rows(matching, limit, params.seed, _kind))

    return lambda: read(train, rows_to_read(params), levels), lambda: read(test, params.test_questions, ())


def _given(name: str, convert: Callable[[Row], Read], params: GivenParams) -> Source:
    """Open questions over their own paragraphs, or over wiki18."""
    levels = getattr(params, "train_level", ())
    train_rows, test_rows = open_splits(name, params, convert, root=params.root, levels=levels)
    if params.passages == "wiki18":
        return Source(wiki18(params.root), _bare(train_rows()), _bare(test_rows()))
    return Source(
        passages=_drop_repeats(chain(train_rows(), test_rows())),
        train=_questions(train_rows()),
        test=_questions(test_rows()),
    )


def _open(name: str, params: OpenParams) -> Source:
    """Open questions without paragraphs over wiki18."""
    train_rows, test_rows = open_splits(name, params, _bare_row, root=params.root)
    return Source(wiki18(params.root), _questions(train_rows()), _questions(test_rows()))


def load_all(params: OpenParams) -> Source:
    """Open the four sets of HARR's code over wiki18: HotpotQA, 2WikiMultihopQA, NQ and TriviaQA."""
    rows_of = {
        name: open_splits(name, params, convert, root=params.root)
        for name, convert in (
            ("hotpotqa", hotpot_row),
            ("2wikimultihopqa", hotpot_row),
            ("nq", _bare_row),
            ("triviaqa", _bare_row),
        )
    }

    def named(split: int) -> Iterator[Question]:  # two sets use the same question numbers
        for name, rows in rows_of.items():
            yield from (replace(question, id=f"{name}-{question.id}") for question in _bare(rows[split]()))

    return Source(wiki18(params.root), named(0), named(1))


def _questions(rows: Iterable[Read]) -> Iterator[Question]:
    return (question for question, _ in rows)


def _bare(rows: Iterable[Read]) -> Iterator[Question]:
    """Return questions without gold: their own paragraphs are not passages of wiki18."""
    return (replace(question, gold_ids=(), candidate_ids=()) for question in _questions(rows))


def wiki18(root: str) -> Iterator[Passage]:
    """Yield the 21,015,324 passages of 100 words; a row's ``contents`` is the quoted title, a newline, the text."""
    for path in fetch(*WIKI18, root):
        for row in read_rows(path):
            title, _, text = str(row.values.get("contents") or "").partition("\n")
            if not text.strip():
                raise CorpusError(f"{row.place}: passage without text; expected contents as title, newline, text")
            yield Passage(str(row.values.get("id")), " ".join(text.split()), title.strip().strip('"'))


def fetch(repository: str, pattern: str, root: str) -> list[Path]:
    """Return the local paths of a repository's files, downloaded if ``root`` is empty.

    Raises:
        CorpusError: no network, or no such file.
    """
    try:
        folder = (
            Path(root) / repository
            if root
            else Path(snapshot_download(repository, repo_type="dataset", allow_patterns=[pattern], tqdm_class=tqdm))
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise CorpusError(
            f"download: cannot get {pattern} of {repository} from the hub ({one_line(error)}); "
            "connect, or put the files under root (download.settings) as <repository>/<file>"
        ) from None
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise CorpusError(f"download: no {pattern} in {folder}; put the hub's files of {repository} there")
    return paths


def _drop_repeats(reads: Iterable[Read]) -> Iterator[Passage]:
    seen: set[str] = set()
    for _, passages in reads:
        for passage in passages:
            if passage.id not in seen:
                seen.add(passage.id)
                yield passage


def _passage(title: str, text: str) -> Passage:
    """Return a paragraph under an id that depends only on its content."""
    title, text = " ".join(title.split()), " ".join(text.split())
    return Passage(hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16], text, title)


def hotpot_row(row: Row) -> Read:
    """Return a question of HotpotQA or 2WikiMultihopQA, and its paragraphs."""
    _require(row, "context", "supporting_facts", "answer")
    context, facts = row.values["context"], row.values["supporting_facts"]
    pairs = zip(context["title"], context["sentences"], strict=True)
    passages = [_passage(title, " ".join(sentences)) for title, sentences in pairs if "".join(sentences).strip()]
    by_title = {" ".join(title.split()): _id for title, _id in ((p.title, p.id) for p in passages)}
    gold = dict.fromkeys(
        by_title[title] for title in (" ".join(t.split()) for t in facts["title"]) if title in by_title
    )
    return _question(row, (row.text("answer", "question"),), tuple(gold), passages), passages


def _musique_row(row: Row) -> Read:
    _require(row, "paragraphs", "question_decomposition", "answer")
    paragraphs = row.values["paragraphs"]
    passages = {p["idx"]: _passage(p["title"], p["paragraph_text"]) for p in paragraphs}
    order = [step["paragraph_support_idx"] for step in row.values["question_decomposition"]]
    gold = dict.fromkeys(passages[place].id for place in order if place in passages)
    answers = (row.text("answer", "question"), *row.strings("answer_aliases"))
    distinct = list({p.id: p for p in passages.values()}.values())
    return _question(row, answers, tuple(gold), distinct), distinct


def _bare_row(row: Row) -> Read:
    _require(row, "golden_answers")
    return _question(row, row.strings("golden_answers"), (), []), []


def _question(row: Row, answers: tuple[str, ...], gold: tuple[str, ...], passages: list[Passage]) -> Question:
    candidates = tuple(dict.fromkeys(passage.id for passage in passages))
    level = str(row.values.get("level") or "")
    text = row.text("question", "question")
    return Question(row.text("id", "question"), text, answers, gold, candidates, _kind(row), level)


def _kind(row: Row) -> str:
    """Return the type of a question: from its row or, for MuSiQue, its number of hops, with which its id starts."""
    match = re.match(r"(\d)hop", str(row.values.get("id")))
    return f"{match[1]}hop" if match else str(row.values.get("type") or "")


def _require(row: Row, *keys: str) -> None:
    """Check that a row has the columns of its format.

    Raises:
        CorpusError: a column is missing; names it and the place.
    """
    values: Mapping[str, Any] = row.values
    for key in keys:
        if values.get(key) is None:
            raise CorpusError(
                f"{row.place}: no column {key}; expected the hub's own file format (found {list(values)})"
            )


def _origin(repository: str) -> Callable[[Any], str]:
    """Return a function that describes where the passages of a data set from the hub come from.

    >>> _origin("hotpotqa/hotpot_qa")(GivenParams(root="files"))
    'the paragraphs given with the questions of hotpotqa/hotpot_qa, from the folder files'
    """

    def tell(params: Any) -> str:
        own = getattr(params, "passages", "wiki18") == "context"
        what = f"the paragraphs given with the questions of {repository}" if own else WIKI18[0]
        return f"{what}, from {f'the folder {params.root}' if params.root else 'the hub'}"

    return tell


def _dataset(name: str, load: Callable[..., Source], settings: type[OpenParams]) -> Dataset:
    return Dataset(load, _origin(FILES[name][0]), vast=True, settings=settings)


HOTPOTQA = _dataset("hotpotqa", partial(_given, "hotpotqa", hotpot_row), HotpotParams)
"""HotpotQA: ten paragraphs per question, two of them gold (distractor)."""
TWO_WIKI = _dataset("2wikimultihopqa", partial(_given, "2wikimultihopqa", hotpot_row), GivenParams)
"""2WikiMultihopQA in HotpotQA's format: ten paragraphs per question, two or four of them gold."""
MUSIQUE = _dataset("musique", partial(_given, "musique", _musique_row), GivenParams)
"""MuSiQue-Ans: twenty paragraphs per question, two to four of them gold, in hop order."""
NQ = _dataset("nq", partial(_open, "nq"), OpenParams)
"""NQ-open over wiki18."""
TRIVIAQA = _dataset("triviaqa", partial(_open, "triviaqa"), OpenParams)
"""TriviaQA over wiki18."""
ALL = Dataset(load_all, _origin(WIKI18[0]), vast=True, settings=OpenParams)
"""The four sets of HARR's code over wiki18."""
