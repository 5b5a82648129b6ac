"""Evaluation trajectories as MLflow traces: a trace a question, a span a hop.

The ids of a trace follow from its run, arm and question, so sending one twice changes nothing. Spans
are written many at a time and in this thread: MLflow's own exporter writes from ten threads, of
which SQLite turns some away, and such a trace is lost with no more than a line in a log.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harr.arms import TRAINED
from harr.types import Episode, Step

Trajectory = dict[str, Any]
TEXT = 600
"""Maximum number of characters that are shown of a passage."""
SPANS = 200
"""Maximum number of traces that go to the store at once."""


def trajectories(
    episodes: Mapping[str, Sequence[Episode]],
    rows: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]],
    count: int,
    baseline: str = "frozen",
) -> list[Trajectory]:
    """Choose the episodes that are kept as traces: ``count`` per arm of ``trained`` and its ``baseline``, spread
    evenly.

    Both arms show the same questions, so that a person can compare them.

    Args:
        episodes: those of the first seed per arm, in the order of the questions.
        rows: per arm one list of question rows per seed; those of the first seed give the metrics.
        count: 0 for none.
        baseline: the arm to compare ``trained`` with.
    """
    traces = []
    for arm in [arm for arm in (baseline, TRAINED) if arm in episodes and count]:
        metrics = {row["id"]: row for row in rows[arm][0]}
        arm_episodes = episodes[arm]
        places = sorted({place * len(arm_episodes) // count for place in range(count)}) if arm_episodes else []
        traces += [_trajectory(arm, arm_episodes[place], metrics[arm_episodes[place].question.id]) for place in places]
    return traces


def _trajectory(arm: str, episode: Episode, row: Mapping[str, Any]) -> Trajectory:
    """Return one question as it was played, ready for JSON."""
    from harr.evaluate.rows import NOT_METRICS

    question, answered = episode.question, list(episode.outcome.hops)
    hops = []
    for step in episode.steps:
        hop = answered.pop(0) if answered and answered[0].query == step.search.query else None
        hops.append(_hop(step, set(question.gold_ids)) | ({"answer": hop.answer, "status": hop.status} if hop else {}))
    return {
        "arm": arm,
        "id": question.id,
        "question": question.text,
        "answer": episode.answer,
        "gold_answers": list(question.answers),
        "gold_ids": list(question.gold_ids),
        "metrics": {name: value for name, value in row.items() if name not in NOT_METRICS},
        "hops": hops,
    }


def _hop(step: Step, gold: set[str]) -> dict[str, Any]:
    """Return what a hop asked and what came back, best passage first."""
    retrieval = step.retrieval
    choice = {"logprob": retrieval.logprob, "value": retrieval.value}
    return {
        "query": step.search.query,
        "history": [{"query": h.query, "answer": h.answer, "status": h.status} for h in step.search.hops],
        "state": retrieval.state,
        "passages": [
            {
                "page_content": p.text[:TEXT],
                "metadata": {"doc_uri": p.id, "title": p.title, "rank": rank, "gold": p.id in gold},
            }
            for rank, p in enumerate(retrieval.passages, start=1)
        ],
        "choice": {name: value for name, value in choice.items() if value is not None},
    }


def send_traces(client: Any, experiment: str, run: str, trajectories: Sequence[Trajectory]) -> None:
    """Write trajectories to the store as traces of a run."""
    from mlflow.entities import TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient

    store = TracingClient(client.tracking_uri)
    now = client.get_run(run).info.start_time
    for place, trace in enumerate(trajectories):
        # a millisecond apart, so that the list shows the questions in their order
        info = TraceInfo(
            trace_id=f"tr-{_key(run, trace)}",
            trace_location=TraceLocation.from_experiment_id(experiment),
            request_time=now + place,
            state=TraceState.OK,
            request_preview=trace["question"],
            response_preview=trace["answer"] or "",
            client_request_id=f"{trace['arm']}/{trace['id']}",
            execution_duration=len(trace["hops"]),
            trace_metadata={"mlflow.sourceRun": run, "mlflow.trace_schema.version": "3"},
            tags={
                "mlflow.traceName": f"{trace['arm']} {trace['id']}",
                "mlflow.trace.spansLocation": "TRACKING_STORE",
                "arm": trace["arm"],
                "question": trace["id"],
            },
        )
        store.start_trace(info)
    for start in range(0, len(trajectories), SPANS):
        batch = [
            span
            for place, trace in enumerate(trajectories[start : start + SPANS], start=start)
            for span in _spans(_key(run, trace), trace, (now + place) * 1_000_000)
        ]
        store.log_spans(experiment, batch)


def _key(run: str, trajectory: Trajectory) -> str:
    """Return 32 hexadecimal digits for a trace."""
    return hashlib.sha256(f"{run} {trajectory['arm']} {trajectory['id']}".encode()).hexdigest()[:32]


def _spans(key: str, trajectory: Trajectory, start: int) -> list[Any]:
    """Return the root span with question, answer, gold and metrics, and under it a span a hop.

    No hop was timed, since all questions are played together; each is shown as one millisecond.
    """
    length = 1_000_000 * max(1, len(trajectory["hops"]))
    gold = {"answers": trajectory["gold_answers"], "passages": trajectory["gold_ids"]}
    root = _span(
        key,
        0,
        trajectory["arm"],
        "CHAIN",
        (start, start + length),
        inputs={"question": trajectory["question"]},
        outputs={"answer": trajectory["answer"], "gold": gold, "metrics": trajectory["metrics"]},
    )
    hops = [
        _span(
            key,
            number,
            f"hop {number}: {hop['query'][:80]}",
            "RETRIEVER",
            (start + (number - 1) * 1_000_000, start + number * 1_000_000),
            inputs={name: hop[name] for name in ("query", "history", "state") if hop[name]},
            outputs=hop["passages"],
            **{name: hop[name] for name in ("answer", "status") if hop.get(name)},
            **hop["choice"],
        )
        for number, hop in enumerate(trajectory["hops"], start=1)
    ]
    return [root, *hops]


def _span(
    key: str, number: int, name: str, kind: str, times: tuple[int, int], *, inputs: Any, outputs: Any, **more: Any
) -> Any:
    """Return a span; ``number`` 0 is the root. Times in nanoseconds."""
    from mlflow.entities import Span

    attributes = {
        "mlflow.traceRequestId": f"tr-{key}",
        "mlflow.spanType": kind,
        "mlflow.spanInputs": inputs,
        "mlflow.spanOutputs": outputs,
        **more,
    }
    return Span.from_dict(
        {
            "trace_id": f"tr-{key}",
            "span_id": f"{number + 1:016x}",
            "parent_span_id": f"{1:016x}" if number else "",
            "name": name,
            "start_time_unix_nano": times[0],
            "end_time_unix_nano": times[1],
            "status": {"code": "OK", "message": ""},
            "attributes": {name: json.dumps(value) for name, value in attributes.items()},
        }
    )
