"""Any input is read, or refused in a line: no traceback, nothing half-written. FUZZ_CASES sets how many of each kind."""

import json
import os
import random
import time
from pathlib import Path

import pytest
from fuzz_cases import KINDS, PIPELINES, outcome
from hypothesis import given, settings, strategies as st

from harr.datasets.local import passage_of
from harr.errors import CorpusError, ParamsError
from harr.io.jsonl import read_rows
from harr.params import Params
from harr.rag.rollout import play
from harr.rag.scoring.terms import TERMS
from harr.types import Generate, Passage, Question, Retrieval, Search


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=int(os.environ.get("FUZZ_CASES", "40")), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_comes_is_read_or_refused_in_a_line(kind: str, seed: int) -> None:
    began = time.process_time()
    assert outcome(kind, random.Random(seed)) in ("accepted", "ParamsError", "CorpusError", "ModelError")
    assert time.process_time() - began < 5


def test_what_yaml_cannot_convert_is_one_line(tmp_path: Path) -> None:
    texts = ("a: 2024-13-45", "a: !!bool x", "a: !!timestamp x", "a: 0o", "a: &a [*a]", "[" * 5000, "a: *b")
    for text in (*texts, "!!python/object:x {}"):
        (tmp_path / "params.yaml").write_text(text)
        with pytest.raises(ParamsError) as error:
            Params.load(tmp_path / "params.yaml")
        assert all(len(line) < 1000 for line in str(error.value).split("\n")), text


@pytest.mark.fault(17)
def test_half_a_character_is_named_with_its_place(tmp_path: Path) -> None:
    row = json.dumps({"id": "p1", "text": "Bath \ud83d"})
    for name, text in {"rows.jsonl": row, "rows.json": f"[{row}]"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(CorpusError, match=r"rows\.json(l:1|: row 1): half a character \(\\ud83d\)"):
            [passage_of(one) for one in read_rows(tmp_path / name)]


class One:
    """Always says, and finds, the same."""

    def __init__(self, text: str) -> None:
        self._text = text

    def complete(self, requests: list[Generate]) -> list[str]:
        return [self._text] * len(requests)

    def retrieve(self, searches: list[Search]) -> list[Retrieval]:
        return [Retrieval((Passage("p1", self._text, self._text[:1000]),))] * len(searches)

    def usage(self) -> dict[str, float]:
        return {}


@pytest.mark.fault(11)
@pytest.mark.parametrize(
    "piece",
    ['{"a":', "[", "{", "<think>", "< ", "<search>a", "Final answer: ", "<tool_call>", "A of ", "word "],
)
def test_a_megabyte_that_repeats_itself_is_read_in_seconds(piece: str) -> None:
    """A careless pattern would rescan such a reply or passage at every character."""
    text = piece * (1_000_000 // len(piece))
    for pipeline in PIPELINES:
        began = time.process_time()
        [episode] = play([Question("q", "Who?", ("Bath",), ("p1",))], pipeline, One(text), One(text))
        assert all(term(episode) is not False for term in TERMS.values())
        assert time.process_time() - began < 10
