"""A person can open one question of an evaluation and read each hop."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from harr.evaluate.rows import question_rows
from harr.params import Params
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step
from tasks.tracking.run import tracked_run
from tasks.tracking.traces import TEXT, trajectories


def episode(number: int, *, right: bool) -> Episode:
    """Two hops: the second reads the first."""
    question = Question(f"q{number}", "Where was the founder of Acme born?", ("Bath",), ("p1", "p2"))
    first = Hop("Who founded Acme?", "Ada Brown", "FOUND")
    second = Hop("Where was she born?", "Bath" if right else "", "FOUND" if right else "NOT_FOUND")
    found = Passage("p2" if right else "p9", "She was born in Bath. " * 60, "Ada Brown")
    steps = (
        Step(Search(question, first.query), Retrieval((Passage("p1", "Ada Brown founded Acme.", "Acme"),))),
        Step(Search(question, second.query, (first,)), Retrieval((found,), state="History: ...", logprob=-1.5)),
    )
    return Episode(question, steps, Outcome("Bath" if right else "York", (first, second)))


def played() -> dict[str, Any]:
    """Ten questions, which only trained answers."""
    sides = {"bm25": False, "frozen": False, "trained": True}
    episodes = {arm: [episode(number, right=right) for number in range(10)] for arm, right in sides.items()}
    return {"episodes": episodes, "rows": {arm: [question_rows(side)] for arm, side in episodes.items()}}


def test_both_arms_show_the_same_questions_spread_evenly() -> None:
    chosen = [(one["arm"], one["id"]) for one in trajectories(**played(), count=5)]
    assert chosen == [(arm, f"q{number}") for arm in ("frozen", "trained") for number in (0, 2, 4, 6, 8)]
    assert len(trajectories(**played(), count=50)) == 20 and trajectories(**played(), count=0) == []


def test_a_trace_tells_question_answer_gold_metrics_and_every_hop(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARR_EXECUTION", "one")
    client = MlflowClient()
    with tracked_run("evaluate", Params.load()) as run:
        for _ in range(2):  # a replay that was killed sends them again
            run.traces(trajectories(**played(), count=2))
    traces = {trace.info.client_request_id: trace for trace in client.search_traces(locations=["1"])}
    assert sorted(traces) == ["frozen/q0", "frozen/q5", "trained/q0", "trained/q5"]
    trace = traces["trained/q5"]
    assert trace.info.trace_metadata["mlflow.sourceRun"] == run.run_id
    assert (trace.info.tags["arm"], trace.info.tags["question"]) == ("trained", "q5")
    assert trace.info.request_preview == "Where was the founder of Acme born?" and trace.info.response_preview == "Bath"
    root, first, second = sorted(trace.data.spans, key=lambda span: span.start_time_ns + bool(span.parent_id))
    assert [first.name, second.name] == ["hop 1: Who founded Acme?", "hop 2: Where was she born?"]
    assert {first.parent_id, second.parent_id} == {root.span_id}
    assert root.outputs["answer"] == "Bath" and root.outputs["gold"] == {"answers": ["Bath"], "passages": ["p1", "p2"]}
    assert root.outputs["metrics"]["answer_f1"] == 1.0 and root.outputs["metrics"]["recall"] == 1.0
    assert second.inputs["query"] == "Where was she born?" and second.inputs["history"][0]["answer"] == "Ada Brown"
    (passage,) = second.outputs
    assert passage["metadata"] == {"doc_uri": "p2", "title": "Ada Brown", "rank": 1, "gold": True}
    assert len(passage["page_content"]) == TEXT
    assert second.attributes["logprob"] == -1.5 and second.attributes["status"] == "FOUND"
    assert traces["frozen/q5"].data.spans[0].outputs["metrics"]["answer_f1"] == 0.0
