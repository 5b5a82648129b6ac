"""Keep the training questions whose rollouts disagree: only those have a gradient.

A question is kept if the G sampled rollouts of the untrained policy (the retriever or language model that will learn)
score differently (HARR, arXiv 2602.03645, section 5.1); every question gets a reason.
"""

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harr.compute import distributed
from harr.corpus.passages import write_questions
from harr.errors import CorpusError
from harr.io.files import draft, fingerprint, note_published, read_jsonl, write_text
from harr.io.progress import bar, stoppable
from harr.params.filter import FilterParams
from harr.rag.rollout import play
from harr.rag.setup import Setup
from harr.types import Episode, Log, Question


def filter_questions(
    params: FilterParams, setup: Setup, out: Path, work: Path, log: Log, seed: int
) -> dict[str, float]:
    """Roll out shuffled questions batch by batch until ``params.target`` are kept.

    Writes ``out/questions.jsonl`` (kept, from easy to hard) and ``out/statistics.jsonl`` (all that were tried: id,
    reward_mean, reward_std, kept, reason). Finished batches survive a kill in ``work`` until the stage has ended.

    Returns:
        Counts per reason, and the share kept.

    Raises:
        CorpusError: no question was kept.
    """
    identity = {"params": params.model_dump(), "setup": setup.identity, "seed": seed}
    run = work / fingerprint(identity)
    order = np.random.default_rng(seed).permutation(len(setup.questions))
    questions = [setup.questions[i] for i in order]
    rows: list[dict[str, Any]] = []
    main = distributed.is_main()
    with bar(total=min(params.target, len(questions)), desc="filter: kept", unit="question", visible=main) as progress:
        for number, first in stoppable(enumerate(range(0, len(questions), params.batch_size))):
            shard = run / f"batch-{number:05d}.jsonl"
            if shard.exists():
                batch_rows = read_jsonl(shard)
            else:
                batch = questions[first : first + params.batch_size]
                batch_rows = try_questions(params, setup, batch, seed * 1_000_003 + number)
                distributed.main_process_only(partial(write_text, shard, _lines(batch_rows)))
            rows += batch_rows
            count = sum(row["kept"] for row in rows)
            progress.update(min(count, params.target) - progress.n)
            log(number, {"kept": float(count), "tried": float(len(rows))})
            if count >= params.target:
                break
    return distributed.main_process_only(lambda: _write(params, questions, rows, run, out))


def try_questions(params: FilterParams, setup: Setup, batch: Sequence[Question], seed: int) -> list[dict[str, Any]]:
    """Return each question's statistics over G sampled rollouts, and whether the filter keeps it."""
    playable = [q for q in batch if q.candidate_ids or getattr(setup.retriever, "candidates", "corpus") == "corpus"]
    if params.keep == "all":
        return [{"id": q.id, "kept": True, "reason": "all are kept"} for q in playable]
    generator = setup.sample(setup.temperature) if setup.sample else setup.generator
    if not setup.language_model:
        setup.policy.sampling = torch.Generator().manual_seed(seed)
    repeated = [question for question in playable for _ in range(params.group_size)]
    episodes = iter(play(repeated, setup.pipeline, setup.retriever, generator))
    groups = {q.id: [next(episodes) for _ in range(params.group_size)] for q in playable}
    return [_judge(question, groups.get(question.id, []), setup) for question in batch]


def _lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _judge(question: Question, episodes: Sequence[Episode], setup: Setup) -> dict[str, Any]:
    """Return a question's statistics, and whether and why it is kept or dropped."""
    if not episodes:
        return {"id": question.id, "kept": False, "reason": "no given passages"}
    rewards = [reward for reward in setup.reward.totals_or_none(setup.reward.score(episodes), 0) if reward is not None]
    if not rewards:
        return {"id": question.id, "kept": False, "reason": "no reward applies"}
    mean, std = statistics.fmean(rewards), statistics.pstdev(rewards)
    if std > 0:
        reason = "rollouts disagree"
    elif not any(episode.steps for episode in episodes):
        reason = "never searched"
    else:
        reason = "all wrong" if mean == 0 else "all right" if mean == 1 else "all alike"
    return {"id": question.id, "reward_mean": mean, "reward_std": std, "kept": std > 0, "reason": reason}


def _write(
    params: FilterParams, questions: Sequence[Question], rows: list[dict[str, Any]], run: Path, out: Path
) -> dict[str, float]:
    kept_ids = [row["id"] for row in rows if row["kept"]][: params.target]
    reasons = Counter(row["reason"] for row in rows)
    dropped = Counter(row["reason"] for row in rows if not row["kept"])
    if not kept_ids:
        raise CorpusError(
            f"filter kept none of {len(rows)} questions ({dict(reasons)}); "
            "raise filter.group_size or the temperature of what learns, or use easier questions"
        )
    means = {row["id"]: row.get("reward_mean", 0.0) for row in rows}
    kept_ids.sort(key=lambda pid: -means[pid])  # from easy to hard, as a curriculum
    by_id = {question.id: question for question in questions}
    with draft(run / "filtered", out) as folder:
        write_questions((by_id[pid] for pid in kept_ids), folder / "questions.jsonl")
        write_text(folder / "statistics.jsonl", _lines(rows))
        note_published(run)
    counts = {f"dropped_{reason.replace(' ', '_')}": float(n) for reason, n in dropped.items()}
    return {
        "tried": float(len(rows)),
        "kept": float(len(kept_ids)),
        "kept_share": sum(row["kept"] for row in rows) / len(rows),
        **counts,
    }
