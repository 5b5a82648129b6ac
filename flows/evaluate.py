"""Stage evaluate: `python -m flows.evaluate`; with options it is `harr evaluate`, for any model and any questions."""

import sys
from collections.abc import Mapping

from prefect import flow

from flows.runtime.command import run_stage
from flows.runtime.told import say
from harr.params import Params
from tasks.audit import audit_play
from tasks.common import as_it_is
from tasks.evaluate import (
    asked_questions,
    changes_of,
    evaluation_frame,
    play_arms,
    plot_and_report,
    summarise_arms,
    write_evaluation,
)
from tasks.expectations.process import data_docs, expect
from tasks.filter import write_preferences_page
from tasks.headline import arm_figures, evaluation_note, headline_figures, headline_words
from tasks.occlusion import play_occluded
from tasks.paths import EVALUATION, PLOTS, QUESTIONS, REPORT
from tasks.played import corpus_facts, told_corpus
from tasks.registry.champion import read_champion
from tasks.report_facts import run_facts
from tasks.tracking.run import tracked_run
from tasks.tracking.traces import trajectories


@flow(name="evaluate")
async def evaluate() -> None:
    """Play every arm on the test questions; write metrics, plots and the report."""
    params = Params.load()
    with tracked_run("evaluate", params) as run:
        questions = asked_questions(params, QUESTIONS / "test.jsonl")
        rows, episodes = play_arms(params, as_it_is(questions), run.log, model=None)
        told, shown, asked = as_it_is(rows), as_it_is(episodes), as_it_is(questions)
        summary = {**summarise_arms(params, told), **expect("evaluation", evaluation_frame(told))}
        summary["corpus"] = corpus_facts()
        summary["audit"] = audit_play(params, told, shown, run.log, model=None)
        write_evaluation(params, told, shown, summary)
        occluded = play_occluded(params, asked, told, run.log, model=None)
        links = {f"Checks of {suite}": f"../{page}" for suite, page in data_docs().items()}
        if params.train.prefers:
            links = {"Preferences between queries": write_preferences_page().name, **links}
        changed = changes_of(params, rows, read_champion(params))
        plot_and_report(params, summary, told, shown, run_facts(params), links, occluded, changed)
        run.log(0, arm_figures(summary))
        run.headline(headline_figures(summary), evaluation_note(summary))
        run.tag(corpus=told_corpus(summary["corpus"]))
        run.tag(exploits=", ".join(summary["audit"].get("named", {})) or "none")
        run.traces(trajectories(episodes, rows, params.tracking.traces, params.baseline))
        run.dataset("test questions", QUESTIONS / "test.jsonl", "evaluation")
        for path in (EVALUATION / "trajectories.json", REPORT, PLOTS / "arms.svg"):
            run.artifact(path)
    for line in headline_words(summary).splitlines():
        say(line)


def join(params: Params) -> None:
    """Do what every further process of `accelerate launch -m flows.evaluate` does: it plays what the main one plays."""
    questions = asked_questions(params, QUESTIONS / "test.jsonl")
    rows, episodes = play_arms.fn(params, questions, unlogged, model=None)
    audit_play.fn(params, rows, episodes, unlogged, model=None)
    play_occluded.fn(params, questions, rows, unlogged, model=None)


def unlogged(step: int, values: Mapping[str, float]) -> None:
    """Log nothing: the main process does."""


if __name__ == "__main__":
    if sys.argv[1:]:
        from flows.cli import main

        main("evaluate", *sys.argv[1:])
    run_stage(evaluate, checks=True, join=join)
