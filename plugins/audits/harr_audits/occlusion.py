"""What the trained retriever reads: it plays again with a part of its state hidden (an audit of stage evaluate)."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harr.arms import ARMS, TRAINED
from harr.builders.generators import build_generator
from harr.builders.pipeline import build_reward
from harr.builders.players import open_players
from harr.evaluate.audit import Audit
from harr.evaluate.play import Game
from harr.evaluate.summary import Summary, contrast, headline, summarise
from harr.evaluate.tables import label, spread
from harr.params import Params
from harr.rag.retrieval.rewritten import Rewritten
from harr.types import Episode, Search
from tasks.paths import PLACES
from tasks.play import Rows, arm_pipelines, arm_runs

HARDLY = 0.1
"""Minimum cost of hiding a part of the state for the report to say that the model uses it: 10 points."""
SAYS = (
    "What the trained model reads: the same questions with a part of its state left out; in percent, 95 % interval, and "
    "the points that the part is worth, paired. A part that costs less than 10 points is hardly used."
)


def hidden_parts(state: str, *, writes_queries: bool) -> dict[str, Callable[[Search], Search]]:
    """Return changes that hide each part of a state (``retriever.state``); ``writes_queries``: queries are written.

    >>> list(hidden_parts("json", writes_queries=True)), list(hidden_parts("sep", writes_queries=True))
    (['question', 'history', 'query'], ['question', 'history', 'query'])
    >>> list(hidden_parts("thought", writes_queries=True)), list(hidden_parts("sep", writes_queries=False))
    (['question', 'thought', 'query'], ['question', 'history'])
    """

    def hide_question(search: Search) -> Search:
        return replace(search, question=replace(search.question, text=""))

    def hide_history(search: Search) -> Search:
        return replace(search, hops=())

    def hide_query(search: Search) -> Search:
        return replace(search, query="")

    def hide_thought(search: Search) -> Search:
        return replace(search, thought="")

    if not writes_queries:
        return {"question": lambda search: hide_query(hide_question(search)), "history": hide_history}
    context = {"thought": hide_thought} if state == "thought" else {"history": hide_history}
    return {"question": hide_question, **context, "query": hide_query}


def occlude(params: Params, rows: Mapping[str, list[Rows]], episodes: Mapping[str, Sequence[Episode]]) -> Audit:
    """Play every run of ``trained`` once with each part of its state hidden; return what that costs.

    Its ``facts`` have, for each part and metric, the mean without the part and the part's worth (``cost``), paired by
    question. Empty if no retriever is trained, or ``trained`` was not played.
    """
    if TRAINED not in rows or params.language_model_learns:
        return Audit()
    section, resamples, seed = params.evaluate, params.evaluate.resamples, params.seed
    where = "corpus" if "corpus" in section.candidates else "question"  # its metrics have no prefix
    asked = [episode.question for episode in episodes[TRAINED]]
    hidden = hidden_parts(params.retriever.state, writes_queries=params.pipeline.writes_queries)
    reward = build_reward(params.reward, params.encoder, seed, PLACES)
    generator = build_generator(params.generator, seed, PLACES)
    without: dict[str, list[Rows]] = {part: [] for part in hidden}
    with open_players(params, PLACES, asked, candidates=where) as player:
        for run in [run for run in arm_runs(params, None) if run.name == TRAINED]:
            retriever = player(run.arm, run.folder)
            for part, hide in hidden.items():
                desc = f"{run} without the {part}"
                game = Game(desc, arm_pipelines(params)[TRAINED], Rewritten(retriever, hide), generator)
                played = game.play(asked, batch_size=section.batch_size)
                without[part].append(game.rows(played, reward.means(played), picking=params.pipeline.name == "pick"))
            del retriever, game
            gc.collect()  # a model is a reference cycle, and only one may be loaded at a time
    all_rows = {TRAINED: rows[TRAINED], **without}
    arms = dict.fromkeys(all_rows, ARMS[TRAINED])
    summary = summarise(all_rows, baseline=TRAINED, arms=arms, resamples=resamples, seed=seed)
    costs = {part: contrast(rows[TRAINED], without[part], resamples=resamples, seed=seed) for part in hidden}
    facts = {
        part: {
            name: {**values, "cost": gain["gain"], "cost_low": gain["low"], "cost_high": gain["high"]}
            for name, values in summary["arms"][part].items()
            if (gain := costs[part].get(name))
        }
        for part in hidden
    }
    figures = {f"{TRAINED}_without_{part}.{name}": one["mean"] for part, m in facts.items() for name, one in m.items()}
    return Audit(figures=figures, facts=facts, title="Parts of the state", says=SAYS, table=_table(summary, facts))


def _table(summary: Summary, parts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row for ``trained`` and one for each hidden part, with its cost and what that says about the reading."""
    whole = summary["arms"][TRAINED]
    lead = headline({"arms": {TRAINED: whole}})
    rows = [{"state": TRAINED, label(lead): spread(whole[lead], "mean"), "points": "", "so": ""}]
    for part, metrics in parts.items():
        found = metrics[lead]
        cost = {"gain": found["cost"], "low": found["cost_low"], "high": found["cost_high"]}
        rows.append(
            {
                "state": f"{TRAINED} without the {part}",
                label(lead): spread(found, "mean"),
                "points": spread(cost, "gain", "+.1f"),
                "so": f"it reads the {part}" if cost["gain"] >= HARDLY else f"it hardly uses the {part}",
            }
        )
    return rows
