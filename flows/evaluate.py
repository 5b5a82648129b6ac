"""Stage evaluate: `python -m flows.evaluate`; with --questions any model on any questions."""

import argparse
from pathlib import Path

from prefect import flow

from flows.runtime.command import main, run_command
from harr.arms import ARMS
from harr.params import Params
from tasks.evaluate import (
    asked_questions,
    evaluate_file,
    evaluation_frame,
    play_arms,
    plot_and_report,
    show,
    summarise_arms,
    write_evaluation,
)
from tasks.expectations.process import data_docs, expect
from tasks.filter import write_preferences_page
from tasks.paths import EVALUATION, PLOTS, QUESTIONS, REPORT
from tasks.report_facts import run_facts
from tasks.tracking.run import tracked_run
from tasks.tracking.traces import trajectories


@flow(name="evaluate")
async def evaluate() -> None:
    """Play every arm on the test questions; write metrics, plots and the report."""
    params = Params.load()
    with tracked_run("evaluate", params) as run:
        questions = asked_questions(params, QUESTIONS / "test.jsonl")
        rows, episodes = play_arms(params, questions, run.log, model=None)
        summary = {**summarise_arms(params, rows), **expect("evaluation", evaluation_frame(rows))}
        write_evaluation(params, rows, episodes, summary)
        links = {f"Checks of {suite}": f"../{page}" for suite, page in data_docs().items()}
        if params.train.method == "leret":
            links = {"Preferences between queries": write_preferences_page().name, **links}
        plot_and_report(params, summary, run_facts(params), links)
        run.log(
            0, {f"{arm}.{name}": v["mean"] for arm, metrics in summary["arms"].items() for name, v in metrics.items()}
        )
        run.traces(trajectories(episodes, rows, params.tracking.traces, params.baseline))
        run.dataset("test questions", QUESTIONS / "test.jsonl", "evaluation")
        for path in (EVALUATION / "trajectories.json", REPORT, PLOTS / "arms.svg"):
            run.artifact(path)
    print(show())


def command() -> None:
    """The stage without arguments; the arms table of the last run; or any model on any question file."""
    parser = argparse.ArgumentParser(prog="python -m flows.evaluate", description=evaluate.__doc__)
    parser.add_argument("--questions", type=Path, help="question file (README: Your own data); needs --out")
    parser.add_argument("--out", type=Path, help="where the metrics go, in the shape of metrics/evaluate.json")
    parser.add_argument("--model", type=Path, help="merged model folder for the arm full (default: models/adapter)")
    parser.add_argument("--arms", nargs="+", default=(), choices=ARMS, help="which arms (default: evaluate.arms)")
    parser.add_argument("--show", action="store_true", help="print the arms of metrics/evaluate.json and stop")
    options = parser.parse_args()
    if options.show:
        run_command(lambda: print(show()))
    elif options.questions or options.out:
        if not (options.questions and options.out):
            parser.error("--questions and --out go together")
        run_command(lambda: evaluate_file(Params.load(), options.questions, options.out, options.model, options.arms))
    else:
        main(evaluate, checks=True, arguments=[])


if __name__ == "__main__":
    command()
