"""Run files: the tools of the field measure in them what we measured."""

from itertools import cycle, islice
from pathlib import Path
from random import Random

import ir_measures
import pytest
from downloading import write_rows
from harr_ir.trec import write_runs
from ir_measures import RR, R, Success, nDCG

from harr.corpus.passages import write_questions
from harr.evaluate.rows import question_rows
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
    for seed, name in enumerate(("frozen", "trained", "trained-1")):
        episodes = rankings(seed)
        ours = question_rows(episodes)
        unplayed = Question("q40", "Where?", gold_ids=("d 0",))  # evaluate.max_questions leaves some out
        write_questions([*(episode.question for episode in episodes), unplayed], tmp_path / "test.jsonl")
        write_rows(tmp_path / f"evaluation/{name}.jsonl", ours)
        files = write_runs(tmp_path, tmp_path / "evaluation", tmp_path / "test.jsonl")
        assert f"{name}.run" in [path.name for path in files]
        qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt")))
        run = list(ir_measures.read_trec_run(str(tmp_path / f"{name}.run")))
        measured = ir_measures.iter_calc([R @ 2, R @ 5, R @ 10, nDCG @ 10, RR, Success @ 5], qrels, run)
        theirs = {(found.query_id, str(found.measure)): found.value for found in measured}
        assert len(theirs) == 40 * len(MEASURES)
        for row in ours:
            for metric, measure in MEASURES.items():
                assert row[metric] == pytest.approx(theirs[row["id"], measure], abs=1e-6), (row["id"], measure)
