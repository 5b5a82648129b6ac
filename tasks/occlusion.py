"""What the trained retriever reads: it plays again with a part of its state left out (evaluate.occlusion)."""

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harr.arms import ARMS, TRAINED
from harr.io.files import write_json
from harr.params import Params
from harr.types import Log, Question
from tasks.paths import OCCLUSION, PLACES
from tasks.play import Rows, arm_pipelines, arm_runs, round_figures

if TYPE_CHECKING:
    from harr.evaluate.play import ArmRun


def play_occluded(
    params: Params, questions: Sequence[Question], rows: Mapping[str, list[Rows]], log: Log, *, model: Path | None
) -> dict[str, Any]:
    """Play every run of ``trained`` once for each part of its state, which is hidden; return what it costs.

    ``rows`` are those of the arms, ``trained`` with its whole state among them; ``model`` as for the arms. Each part
    has for every metric its mean without the part and what the part is worth (``cost``), paired by question.
    metrics/occlusion.json is empty where ``evaluate.occlusion`` is not set.
    """
    from harr.compute import distributed

    runs = [run for run in arm_runs(params, model) if run.name == TRAINED]
    occluded = params.evaluate.occlusion
    figures = round_figures(_occlusion(params, questions, runs, rows[TRAINED], log)) if occluded else {}
    distributed.main_process_only(lambda: write_json(OCCLUSION, figures))
    return dict(figures)


def _occlusion(
    params: Params, questions: Sequence[Question], runs: "Sequence[ArmRun]", trained: list[Rows], log: Log
) -> dict[str, Any]:
    from harr.builders.generators import build_generator
    from harr.builders.pipeline import build_reward
    from harr.builders.players import open_players
    from harr.evaluate.play import Game
    from harr.evaluate.summary import contrast, summarise
    from harr.rag.retrieval.rewritten import Rewritten, hidden_parts

    section, pipeline = params.evaluate, params.pipeline
    hidden = hidden_parts(params.retriever.state, writes_queries=pipeline.writes_queries)
    where = "corpus" if "corpus" in section.candidates else "question"  # its metrics have no prefix
    played_questions = [q for q in questions if q.candidate_ids] if where == "question" else questions
    reward = build_reward(params.reward, params.encoder, params.seed, PLACES)
    generator = build_generator(params.generator, params.seed, PLACES)
    rows: dict[str, list[Rows]] = {part: [] for part in hidden}
    with open_players(params, PLACES, played_questions, candidates=where) as player:
        for run in runs:
            retriever = player(run.arm, run.folder)
            for part, hide in hidden.items():
                desc = f"{run} without the {part}"
                game = Game(desc, arm_pipelines(params)[TRAINED], Rewritten(retriever, hide), generator)
                episodes = game.play(played_questions, batch_size=section.batch_size)
                rows[part].append(game.rows(episodes, reward.means(episodes), picking=pipeline.name == "pick"))
            del retriever, game
            gc.collect()  # a model is a reference cycle; one is loaded at a time
    resamples, seed = section.resamples, params.seed
    all_rows = {TRAINED: trained, **rows}
    arms = dict.fromkeys(all_rows, ARMS[TRAINED])
    means = summarise(all_rows, baseline=TRAINED, arms=arms, resamples=resamples, seed=seed)["arms"]
    costs = {part: contrast(trained, rows[part], resamples=resamples, seed=seed) for part in hidden}
    figures = {
        part: {
            name: {**values, "cost": gain["gain"], "cost_low": gain["low"], "cost_high": gain["high"]}
            for name, values in means[part].items()
            if (gain := costs[part].get(name))
        }
        for part in hidden
    }
    log(0, {f"{TRAINED}_without_{part}.{name}": v["mean"] for part, m in figures.items() for name, v in m.items()})
    return figures
