"""Every stage and command that opens vectors refuses those of another corpus, by one shared opener."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from stages import ROOT, nothing

from harr.corpus.passages import Passages, write_passages, write_questions
from harr.errors import IndexMismatch
from harr.io.files import write_json
from harr.params import Params
from harr.types import Passage, Question
from tasks.arms import train_each
from tasks.common import read_vectors_manifest
from tasks.embed import vectors_frame
from tasks.filter import filter_training_questions
from tasks.index import index_passages
from tasks.merge import merge_adapter
from tasks.paths import CORPUS, FILTERED, QUESTIONS, VECTORS
from tasks.play import play_arms
from tasks.report import run_facts
from tasks.train import train_policy

ASKED = [Question("q", "Where?", ("Bath",), ("p1",))]


USERS: dict[str, Callable[[Params], object]] = {
    "embed": lambda params: vectors_frame(),
    "index": lambda params: index_passages(params),
    "filter": lambda params: filter_training_questions(params, nothing),
    "train": lambda params: train_policy(params, nothing),
    "arms": lambda params: train_each(params, nothing, nothing),
    "evaluate": lambda params: play_arms(params, ASKED, nothing, model=None),
    "merge": lambda params: merge_adapter(params),
    "report": lambda params: run_facts(params),
    "manifest": lambda params: read_vectors_manifest(),
}


@pytest.mark.fault(6)
def test_vectors_of_another_corpus_of_the_same_size_are_refused(workplace: Path) -> None:
    passages = [Passage(f"p{row}", f"text {row}") for row in range(4)]
    write_passages(passages, CORPUS)
    QUESTIONS.mkdir(parents=True)
    FILTERED.mkdir(parents=True)
    write_questions(ASKED, QUESTIONS / "train.jsonl")
    write_questions(ASKED, FILTERED / "questions.jsonl")
    made = {"identity": "v", "rows": 4, "width": 2, "dtype": "float32", "encoder": "e", "shards": []}
    write_json(VECTORS / "manifest.json", made | {"corpus": "0123"})
    here = Passages.open(CORPUS).identity
    message = f"data/vectors was made of corpus 0123, but the corpus beside it is {here}; run `dvc repro`"
    for user, call in USERS.items():
        with pytest.raises(IndexMismatch, match=f"^{re.escape(message)}"):
            pytest.fail(f"{user}: {call(Params.load())}")


@pytest.mark.fault(6)
def test_no_vectors_are_opened_but_with_their_corpus() -> None:
    """``Vectors.open`` compares no corpus: ``Vectors.of`` does, and ``EmbeddingCache`` compares each text's hash."""
    code = [path for room in ("harr", "tasks", "flows") for path in sorted((ROOT / room).rglob("*.py"))]
    opening = [path.relative_to(ROOT).as_posix() for path in code if re.search(r"\bVectors\.open\(", path.read_text())]
    assert opening == ["harr/embed/embedding_cache.py"]
