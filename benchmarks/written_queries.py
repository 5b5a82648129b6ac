"""What learning to read the history gives when a language model writes the sub-queries.

`python -m benchmarks.written_queries FOLDER`: FOLDER is a project of recipes/harr_small_lm.yaml after `dvc repro`.
Every arm plays the two-hop test questions again. A second sub-query is vague if it has a pronoun instead of whom it is
about; which questions are asked vaguely is found by playing once with the first gold passage on top, so that no arm's
finds decide this. Answer EM and the gains of ``trained`` are printed for both kinds of question, and for mixtures of
them: a curve by the share of vague questions. Intervals are over seeds and questions.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import numpy as np
from harr_encyclopaedia import grammar

from harr.arms import ARMS, TRAINED
from harr.builders.generators import build_generator
from harr.builders.pipeline import build_pipeline
from harr.builders.places import Places
from harr.builders.players import open_players
from harr.corpus.passages import Passages, read_questions
from harr.evaluate.intervals import resample
from harr.io.files import write_json
from harr.params import Params
from harr.rag.rollout import play
from harr.rag.scoring.terms import answer_em
from harr.types import Episode, Question, Retrieval, Retriever, Search
from tasks.trained_runs import trained_runs

SHARES = (0.25, 0.5, 0.75)
RESAMPLES = 4999
Scores = list[list[float]]
"""Answer EM of an arm, by run and question."""


@dataclass(frozen=True)
class GoldFirst:
    """A retriever that puts the hop's gold passage first."""

    retriever: Retriever
    passages: Passages

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """Return one retrieval per search, in order."""
        found = self.retriever.retrieve(searches)
        return [self._with_gold(*pair) for pair in zip(searches, found, strict=True)]

    def _with_gold(self, search: Search, found: Retrieval) -> Retrieval:
        name = search.question.gold_ids[min(len(search.hops), len(search.question.gold_ids) - 1)]
        (gold,) = self.passages.take([self.passages.rows_of([name])[name]])
        others = [passage for passage in found.passages if passage.id != name]
        return replace(found, passages=(gold, *others[: len(found.passages) - 1]))


def vague(episode: Episode) -> float:
    """Return 1 if the second sub-query has a pronoun, 0 if it names whom it is about, NaN if there is none."""
    later = episode.steps[1:2]
    return float(grammar.parse_vague(later[0].search.query.strip()) is not None) if later else float("nan")


def gains(scores: dict[str, Scores], questions: Sequence[Question], weights_N: Any) -> dict[str, list[float]]:
    """Return the lead of ``trained`` over each rival and its limits, in percent; questions of weight 0 do not count."""
    ours, kept_N = np.array(scores[TRAINED]), np.where(weights_N > 0, weights_N, np.nan)
    rivals = [name for name in scores if name != TRAINED]
    samples = [(ours - np.array(scores[name])) * kept_N for name in rivals]
    drawn = resample(samples, [question.gold_ids for question in questions], resamples=RESAMPLES, seed=0)
    limits = zip(rivals, drawn.means.tolist(), drawn.interval(), strict=True)
    return {rival: [100 * mean, 100 * low, 100 * high] for rival, mean, (low, high) in limits}


def mixed(vague_N: Any, share: float) -> Any:
    """Return weights of mean one under which ``share`` of the questions are vague.

    >>> mixed(np.array([1.0, 0.0, 0.0, np.nan]), 0.5).tolist()
    [1.5, 0.75, 0.75, 0.0]
    """
    is_vague, is_named = vague_N == 1, vague_N == 0
    weights = np.where(is_vague, share / is_vague.sum(), np.where(is_named, (1 - share) / is_named.sum(), 0.0))
    return weights * (weights > 0).sum()


def table(found: dict[str, dict[str, Any]]) -> str:
    """Return the kinds and shares as a Markdown table: EM of every arm, followed by the gain of ``trained``."""
    arms = [*next(iter(found.values()))["gain"]]
    lines = ["| asked | n | trained | " + " | ".join(arms) + " |", "|---" * (3 + len(arms)) + "|"]
    for kind, row in found.items():
        gain = [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" for mean, low, high in row["gain"].values()]
        cells = [f"{row['em'][arm]:.1f}, {span}" for arm, span in zip(arms, gain, strict=True)]
        lines.append(f"| {kind} | {row['questions']} | {row['em'][TRAINED]:.1f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Play all arms and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.written_queries", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/written_queries.json"))
    asked = parser.parse_args()
    out = asked.out.resolve()
    os.chdir(asked.folder)
    params, places = Params.load(Path("params.yaml")), Places.of_project(Path.cwd())
    questions = [q for q in read_questions(Path("data/questions/test.jsonl")) if len(q.gold_ids) == 2]
    pipeline = build_pipeline(params.pipeline, params.generator, places)
    generator = build_generator(params.generator, params.seed, places)
    folders = trained_runs(params)
    scores: dict[str, Scores] = {}
    with open_players(params, places, questions, candidates="corpus") as player:
        gold_first = GoldFirst(player(ARMS["bm25"], None), Passages.open(places.corpus))
        vague_N = np.array([vague(own) for own in play(questions, pipeline, gold_first, generator)])
        for name, arm in params.evaluate.arm_table.items():
            for folder in folders.get(name, [None]):
                episodes = play(questions, pipeline, player(arm, folder), generator)
                scores.setdefault(name, []).append([answer_em(own) or 0.0 for own in episodes])
                written_N = np.array([vague(own) for own in episodes])
                share, count = 100 * np.nanmean(written_N), (~np.isnan(written_N)).sum()
                print(f"{name}: EM {100 * fmean(scores[name][-1]):.1f}, {share:.0f} % vague of {count}", flush=True)
    one_N = np.ones(len(questions))
    kinds = {"all": one_N, "by name": one_N * (vague_N == 0), "vaguely": one_N * (vague_N == 1)}
    kinds |= {f"{share:.0%} vaguely": mixed(vague_N, share) for share in SHARES}
    found = {
        kind: {
            "questions": int((weights_N > 0).sum()),
            "em": {
                name: 100 * float(np.average(np.mean(own, axis=0), weights=weights_N)) for name, own in scores.items()
            },
            "gain": gains(scores, questions, weights_N),
        }
        for kind, weights_N in kinds.items()
    }
    write_json(out, found)
    print(table(found))


if __name__ == "__main__":
    main()
