"""Run files: the tools of the field measure in them what we measured."""

from itertools import cycle, islice
from pathlib import Path
from random import Random

import ir_measures
import pytest
from ir_measures import RR, R, Success, nDCG

from harr.evaluate.rows import question_rows
from harr.evaluate.trec import write_runs
from harr.io.files import read_jsonl
from harr.params.measures import MEASURES
from harr.types import Episode, Passage, Question, Retrieval, Search, Step


def rankings(seed: int) -> list[Episode]:
    """Forty questions with one to four gold documents, graded or not; ten passages or fewer, some of one document."""
    rng, names = Random(seed), [f"d {n}" for n in range(20)]
    episodes = []
    for number in range(40):
        gold = tuple(rng.sample(names, rng.randint(1, 4)))
        grades = tuple(islice(cycle((2, 1, 3)), len(gold))) if number % 2 else ()
        question = Question(f"q{number}", "Who?", gold_ids=gold, grades=grades)
        found = rng.sample([f"{name}_chunk_{n}" for name in names for n in range(2)], rng.choice((10, 10, 3)))
        ranked = Retrieval(tuple(Passage(pid, "") for pid in found))
        episodes.append(Episode(question, (Step(Search(question, "Who?", k=10), ranked),)))
    return episodes


def test_ir_measures_finds_our_figures_in_the_files(tmp_path: Path) -> None:
    rows = {"frozen": [question_rows(rankings(0))], "trained": [question_rows(rankings(1)), question_rows(rankings(2))]}
    for seed, name in enumerate(("frozen.run", "trained.run", "trained-1.run")):
        questions = [episode.question for episode in rankings(seed)]
        ours = [run for by_seed in rows.values() for run in by_seed][seed]
        files = write_runs(tmp_path, rows, questions, seed=0)
        assert [path.name for path in files] == ["frozen.run", "trained.run", "trained-1.run"]
        qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt")))
        run = list(ir_measures.read_trec_run(str(tmp_path / name)))
        measured = ir_measures.iter_calc([R @ 2, R @ 5, R @ 10, nDCG @ 10, RR, Success @ 5], qrels, run)
        theirs = {(found.query_id, str(found.measure)): found.value for found in measured}
        assert len(theirs) == 40 * len(MEASURES)
        for row in ours:
            for metric, measure in MEASURES.items():
                assert row[metric] == pytest.approx(theirs[row["id"], measure], abs=1e-6), (row["id"], measure)
        kept = [row["ranked"] for row in read_jsonl((tmp_path / name).with_suffix(".jsonl"))]
        assert kept == [row["ranked"] for row in ours]


def test_rows_have_the_score_of_every_document_and_measures_that_all_questions_have() -> None:
    question = Question("q", "Who?", gold_ids=("a",))
    found = tuple(Passage(pid, "") for pid in ("a_chunk_1", "b", "a_chunk_0"))
    scored = Step(Search(question, "Who?"), Retrieval(found, scores=(0.9, 0.75, 0.5)))
    [row] = question_rows([Episode(question, (scored,))])
    assert (row["ranked"], row["scores"]) == (["a", "b"], [0.9, 0.75])
    [row] = question_rows([Episode(question, (scored, Step(Search(question, "Who?"), Retrieval(found))))])
    assert "scores" not in row, "a retriever without scores has none"
    long = Retrieval(tuple(Passage(pid, "") for pid in "bcadefg"))  # one of two questions searched seven passages deep
    rows = question_rows([Episode(question, (Step(Search(question, "Who?"), long),)), Episode(question)])
    assert [row["recall_at_5"] for row in rows] == [1.0, 0.0]
    assert not any("recall_at_10" in row or "ndcg_at_10" in row for row in rows)
