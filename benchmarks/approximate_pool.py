"""What an approximate pool does to training: `python -m benchmarks.approximate_pool FOLDER`, in a project's folder.

FOLDER is a project with data/ from stages download, embed and index, and a params.yaml that trains by grpo and picks
without a generator. Training uses the first half of the training questions, over a flat index and over hnsw whose
breadth is set to find .99 and .95 of the exact pool; each trained retriever then plays questions of the second half,
over its own index and over the flat one. Test questions are not read. Options: ``--steps``, ``--questions`` (played in
the end), ``--seeds``, ``--work`` (where indexes and adapters are kept).
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from harr.builders.encoder import build_encoder, trained_encoder
from harr.builders.methods import method_of
from harr.builders.pipeline import build_pipeline
from harr.builders.places import Places
from harr.builders.retrievers import dense_policy, open_corpus
from harr.builders.setup import open_setup
from harr.corpus.passages import Passages, read_questions, write_questions
from harr.corpus.vectors import Vectors
from harr.index.build import build_index
from harr.index.recall import check_recall
from harr.params import Params
from harr.params.index import IndexParams
from harr.params.loop import CheckpointParams
from harr.params.train_facts import ValidationParams
from harr.rag.rollout import play
from harr.rag.scoring.ranking import recall
from harr.types import Question

FLAT = IndexParams(full_text=False)
BREADTHS = (1, 48, 64, 80, 112, 160, 224, 320, 448)
TARGETS = (0.99, 0.95)


def indexes(params: Params, places: Places, work: Path) -> dict[str, tuple[IndexParams, Places]]:
    """Return a flat index, and for each target hnsw with the smallest breadth that reaches it."""
    passages, pool = Passages.open(places.corpus), params.retriever.pool
    vectors, encoder = Vectors.of(passages, places.vectors), build_encoder(params.encoder)
    texts = [question.text for question in read_questions(places.corpus.parent / "questions/train.jsonl")]
    made = {"flat": (FLAT, replace(places, index=work / "flat"))}
    build_index(passages, vectors, FLAT, work / "flat", work / "building")
    for target in TARGETS:
        out = work / f"hnsw-{target}"
        for breadth in BREADTHS:
            section = IndexParams(kind="hnsw", breadth=breadth, min_recall=0.0, full_text=False)
            build_index(passages, vectors, section, out, work / "building")
            found = check_recall(
                passages, vectors, section, out, texts, lambda t: encoder.encode(t, prompt=encoder.plain_prompt), pool
            )["recall_at_pool"]
            if found >= target:
                break
        print(f"hnsw, breadth {breadth}: {100 * found:.1f} % of the {pool} nearest", flush=True)
        made[f"hnsw {target}"] = section, replace(places, index=out)
    return made


def found_by(
    params: Params, section: IndexParams, places: Places, questions: Sequence[Question], adapter: Path | None
) -> float:
    """Return the recall of the questions, in percent, by a trained retriever or the frozen one."""
    with open_corpus(section, places) as corpus:
        encoder = trained_encoder(params.encoder, adapter) if adapter else build_encoder(params.encoder)
        policy = dense_policy(params.retriever, encoder, corpus, "corpus", history=True, trained=adapter)
        episodes = play(questions, build_pipeline(params.pipeline, params.generator, places), policy, None)
    return 100 * fmean(recall(episode) or 0.0 for episode in episodes)


def main() -> None:
    """Train and play everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.approximate_pool", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("work/approximate_pool"))
    asked = parser.parse_args()
    work = asked.work.resolve()
    os.chdir(asked.folder)
    params, places = Params.load(Path("params.yaml")), Places.of_project(Path.cwd())
    shorter = {
        "steps": asked.steps,
        "checkpoints": CheckpointParams(every=asked.steps),
        "validation": ValidationParams(),
    }
    train = params.train.model_copy(update=shorter)
    questions = read_questions(Path("data/questions/train.jsonl"))
    half = len(questions) // 2
    write_questions(questions[:half], work / "learnt.jsonl")
    held_out = questions[half:][: asked.questions]
    made = indexes(params, places, work)
    flat = made["flat"]
    for name, (section, own) in made.items():
        print(f"frozen, {name}: recall {found_by(params, section, own, held_out, None):.1f}", flush=True)
    for seed in range(asked.seeds):
        for name, (section, own) in made.items():
            run = params.model_copy(update={"index": section, "train": train, "seed": seed})
            adapter, began = work / f"{name.replace(' ', '-')}-seed-{seed}", time.monotonic()
            with open_setup(run, own, work / "learnt.jsonl") as setup:
                rows = method_of(train).train(
                    train, setup, adapter, adapter.with_suffix(".work"), lambda step, values: None, seed
                )
            seconds, last = time.monotonic() - began, fmean(row["reward_mean"] for row in rows[-5:])
            over_own, over_flat = (found_by(run, *over, held_out, adapter) for over in ((section, own), flat))
            print(
                f"seed {seed}, trained over {name}: recall of {len(held_out)} held-out questions {over_own:.1f} over "
                f"its own index, {over_flat:.1f} over flat; reward of the last 5 steps {last:.3f}; {seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
