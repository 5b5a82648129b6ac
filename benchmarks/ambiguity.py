"""What learning to read the history gives, by how many sub-queries need it: `python -m benchmarks.ambiguity FOLDER`.

FOLDER is a project of the people's world (params.yaml) whose stages download to filter were run. The planner names
people as often as ``NAMES`` says, and draws its other references at their usual rates. For every rate two retrievers
are trained equally long from the same start on the same questions, one of them with the history; both and the untrained
arms play the test questions. The share of ambiguous sub-queries is counted where every step is answered
(``oracle_query``). Rows are kept in ``--out``, so that a killed run can resume, and become a table.
Options: ``--seeds``, ``--steps`` (a third of them a warm start by gold passages), ``--questions``.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from harr_people.references import RATES

from harr.arms import ARMS
from harr.builders.generators import build_generator
from harr.builders.methods import method_of
from harr.builders.pipeline import build_pipeline
from harr.builders.places import Places
from harr.builders.players import open_players
from harr.builders.setup import open_setup
from harr.corpus.passages import read_questions
from harr.evaluate.intervals import resample
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.params.generator import FunctionGeneratorParams
from harr.params.loop import CheckpointParams
from harr.params.train_facts import ValidationParams
from harr.rag.rollout import play
from harr.rag.scoring.terms import answer_f1
from harr.types import Question

NAMES = {"0": 1.0, "1/4": 1.5, "1/2": 0.5, "3/4": 0.16, "1": 1e-6}
"""The name's rate next to the usual ones of other kinds, by target share; for 0 there are no other kinds."""
UNTRAINED = ("bm25", "bm25_last_answer", "frozen", "last_answer", "first_answer", "all_answers", "history")
BLIND, TRAINED, ORACLE = "rl_no_history", "trained", "oracle_query"
RESAMPLES = 4999
Rows = dict[str, Any]


def with_names(params: Params, share: str, steps: int) -> Params:
    """Return the parameters of a short training with a planner that names people as often as ``share`` needs."""
    kinds = {} if share == "0" else RATES
    references = {"references": kinds | {"name": NAMES[share]}}
    generator = FunctionGeneratorParams(kind="function", function="harr_people.player:Scripted", settings=references)
    changed = {
        "steps": steps,
        "checkpoints": CheckpointParams(every=steps),
        "validation": ValidationParams(),
        "questions_per_step": 8,
    }
    train = params.train.model_copy(update=changed | {"warm_start": steps // 3})
    return params.model_copy(update={"generator": generator, "train": train})


def played(params: Params, places: Places, arm: str, questions: Sequence[Question], folder: Path | None) -> Rows:
    """Return the answer F1 of every question, and the share of sub-queries that do not say whom they are about."""
    pipeline = build_pipeline(params.pipeline, params.generator, places)
    with open_players(params, places, questions, candidates="corpus") as player:
        generator = build_generator(params.generator, params.seed, places)
        episodes = play(questions, pipeline, player(ARMS[arm], folder), generator)
    searches = [step.search for episode in episodes for step in episode.steps]
    return {
        "f1": [answer_f1(episode) or 0.0 for episode in episodes],
        "ambiguous": fmean(search.resolved != search.query for search in searches),
    }


def trained(params: Params, places: Places, arm: str, questions: Path, out: Path, seed: int) -> None:
    """Train an arm into ``out``."""
    with open_setup(params, places, questions, history=ARMS[arm].history) as setup:
        method_of(params.train).train(
            params.train, setup, out, out.with_suffix(".work"), lambda step, values: None, seed
        )


def runs_of(kept: dict[str, Rows], share: str, arm: str) -> list[list[float]]:
    """Return the scores of an arm's runs, in the order of their seeds."""
    return [kept[key]["f1"] for key in sorted(kept) if key.split()[:2] == [share, arm]]


def curve(kept: dict[str, Rows], questions: Sequence[Question]) -> list[Rows]:
    """Return a row per share, over the seeds that all have: mean F1 of the arms, and the gains of ``trained`` over the
    blind and the best untrained arm with their intervals, in percent."""
    golds, rows = [question.gold_ids for question in questions], []
    seeds = min(len(runs_of(kept, share, arm)) for share in NAMES for arm in (TRAINED, BLIND))
    for share in NAMES if seeds else ():
        own = {arm: kept[f"{share} {arm} -"]["f1"] for arm in UNTRAINED}
        best = max(own, key=lambda arm: fmean(own[arm]))
        ours, blind = (runs_of(kept, share, arm)[:seeds] for arm in (TRAINED, BLIND))
        rivals = {BLIND: blind, best: [own[best]] * seeds}
        gains = [
            [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(ours, rival, strict=True)]
            for rival in rivals.values()
        ]
        draws = resample(gains, golds, resamples=RESAMPLES, seed=0)
        found = zip(draws.means.tolist(), draws.interval(), strict=True)
        rows.append(
            {
                "share": 100 * kept[f"{share} {ORACLE} -"]["ambiguous"],
                "best": best,
                "f1": {name: 100 * fmean(map(fmean, of)) for name, of in ({TRAINED: ours} | rivals).items()},
                "gain": [[100 * mean, 100 * low, 100 * high] for mean, (low, high) in found],
            }
        )
    return rows


def table(rows: Sequence[Rows]) -> str:
    """Return the curve as a Markdown table."""
    lines = [
        "| ambiguous | trained | blind | best untrained | trained - blind | trained - best untrained |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        f1, gains = row["f1"], [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" for mean, low, high in row["gain"]]
        best = f"{f1[row['best']]:.1f} `{row['best']}`"
        lines.append(
            f"| {row['share']:.0f} % | {f1[TRAINED]:.1f} | {f1[BLIND]:.1f} | {best} | {gains[0]} | {gains[1]} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train and play what is not kept yet, seed by seed, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ambiguity", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/ambiguity.json"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--questions", type=int, default=200)
    asked = parser.parse_args()
    out = asked.out.resolve()
    os.chdir(asked.folder)
    params, places = Params.load(Path("params.yaml")), Places.of_project(Path.cwd())
    questions = read_questions(Path("data/questions/test.jsonl"))[: asked.questions]
    kept: dict[str, Rows] = read_json(out)["runs"] if out.exists() else {}

    def keep(key: str, made: Rows) -> None:
        kept[key] = made
        write_json(out, {"steps": asked.steps, "questions": len(questions), "runs": kept})
        print(f"{key}: F1 {100 * fmean(made['f1']):.1f}, {100 * made['ambiguous']:.0f} % ambiguous", flush=True)

    plain = [(share, arm, "-") for share in NAMES for arm in (*UNTRAINED, ORACLE)]
    learnt = [(share, arm, str(seed)) for seed in range(asked.seeds) for share in NAMES for arm in (BLIND, TRAINED)]
    for share, arm, seed in [*plain, *learnt]:
        if (key := f"{share} {arm} {seed}") in kept:
            continue
        own, began = with_names(params, share, asked.steps), time.process_time()
        with tempfile.TemporaryDirectory(prefix="harr-ambiguity-") as place:
            folder = Path(place) / "adapter" if seed != "-" else None
            if folder:
                trained(own, places, arm, Path("data/filtered/questions.jsonl"), folder, int(seed))
            found = played(own, places, arm, questions, folder)
        keep(key, found | {"cpu_seconds": round(time.process_time() - began)})
    print(table(curve(kept, questions)))


if __name__ == "__main__":
    main()
