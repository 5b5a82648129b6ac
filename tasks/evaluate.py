"""Stage evaluate: every arm on the same questions, with intervals and audits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harr.errors import CorpusError
from harr.io.files import (
    draft,
    write_json,
    write_text,
)
from harr.params import Params
from harr.types import Episode
from tasks.audits import audit_functions, play_audits
from tasks.evaluation_outputs import PLAYS
from tasks.evaluation_record import FIGURES, PLAYED, corpus_facts, describe_corpus, figures, record_game
from tasks.expectations.process import expect
from tasks.headline import arm_figures, evaluation_note, headline_figures, headline_words
from tasks.paths import AUDITS, EVALUATION, HEADLINE, METRICS, QUESTIONS, WORK
from tasks.play import Rows, draw_test_questions, play_arms, round_figures, with_arms
from tasks.runtime.output import say
from tasks.runtime.stage import main
from tasks.tracking.run import Run


def summarise_arms(params: Params, rows: Mapping[str, list[Rows]]) -> dict[str, Any]:
    """Return means, gains over the baseline and contrasts of ``trained``, with intervals over seeds and questions."""
    from harr.evaluate.summary import summarise

    arms, resamples = params.evaluate.arm_table, params.evaluate.resamples
    means: dict[str, Any] = summarise(rows, baseline=params.baseline, arms=arms, resamples=resamples, seed=params.seed)
    return means


def evaluation_frame(rows: Mapping[str, list[Rows]]) -> pd.DataFrame:
    """Return all rows of all arms and their seeds as one table for the suite ``evaluation``."""
    runs = [(arm, run, arm_rows) for arm, by_seed in rows.items() for run, arm_rows in enumerate(by_seed)]
    ids = {row["id"] for _, _, arm_rows in runs for row in arm_rows}
    frame = pd.DataFrame(
        {
            "arm": f"{arm}-{run}",
            "id": row["id"],
            "questions_missing": len(ids) - len(arm_rows),
            "recall": row.get("recall"),
            "answer_f1": row.get("answer_f1"),
        }
        for arm, run, arm_rows in runs
        for row in arm_rows
    )
    return frame.astype({"recall": float, "answer_f1": float})


def write_evaluation(
    params: Params, rows: Mapping[str, list[Rows]], episodes: Mapping[str, list[Episode]], summary: dict[str, Any]
) -> None:
    """Write figures to metrics/, and question rows, plays, audits and the record of the game with their hashes."""
    from harr.evaluate.plays import plays_of
    from harr.evaluate.summary import CONTRASTS

    write_json(
        METRICS / "evaluate.json", round_figures({name: part for name, part in summary.items() if name != CONTRASTS})
    )
    write_json(METRICS / "contrasts.json", round_figures(summary[CONTRASTS]))
    with draft(WORK / "evaluate" / "evaluation", EVALUATION) as folder:
        for arm, by_seed in rows.items():
            for seed, arm_rows in enumerate(by_seed, start=params.seed):
                lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in arm_rows]
                write_text(folder / (f"{arm}.jsonl" if seed == params.seed else f"{arm}-{seed}.jsonl"), "".join(lines))
        first = {arm: by_seed[0] for arm, by_seed in rows.items()}
        write_json(folder / PLAYS, plays_of(summary, first, episodes))
        write_json(folder / AUDITS, round_figures(summary.get("audits", {})))
        write_json(folder / PLAYED, record_game(params) | {FIGURES: figures()})
    write_json(HEADLINE, headline_figures(summary))


def evaluate_file(params: Params, questions: Path, out: Path, model: Path | None, arms: Sequence[str]) -> None:
    """Play arms (default: those of params.yaml) on the questions of any file and write the metrics.

    Needs this corpus's index. ``trained`` is the folder ``model``, or models/adapter if none is given.

    Raises:
        ParamsError: an arm does not fit params.yaml.
        CorpusError: the questions cannot be read, or ``out`` cannot be written; nothing is played.
    """
    from harr.datasets.local import read_question_file
    from harr.evaluate.tables import table

    params = with_arms(params, arms) if arms else params
    check_out(out, questions)
    question_list = list(read_question_file(questions))
    if len({question.id for question in question_list}) < max(1, len(question_list)):
        raise CorpusError(f"--questions {questions} {'repeats question ids' if question_list else 'holds no question'}")
    rows, _ = play_arms(params, question_list, lambda step, values: None, model=model)
    summary = summarise_arms(params, rows)
    write_json(out, round_figures(summary))
    print(table(summary))


def check_out(out: Path, questions: Path) -> None:
    """Check that ``out`` can be written before anything is played.

    Raises:
        CorpusError: it is a folder, a device or the questions file, or cannot be written.
    """
    if out.exists() and (not out.is_file() or out.samefile(questions)):
        what = "a folder" if out.is_dir() else "the file of the questions" if out.is_file() else "no file"
        raise CorpusError(f"--out {out} is {what}; name another file")
    trial = out.with_name(f".{out.name}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise CorpusError(f"--out {out} cannot be written ({error.strerror}); name another file") from None


def evaluate(params: Params, run: Run) -> None:
    """Play every arm on the test questions; write rows and metrics."""
    audit_functions(params)  # a wrong one fails before anything is played
    questions = draw_test_questions(params, QUESTIONS / "test.jsonl")
    rows, episodes = play_arms(params, questions, run.log, model=None)
    summary = {**summarise_arms(params, rows), **expect("evaluation", evaluation_frame(rows))}
    summary["corpus"] = corpus_facts()
    summary["audits"] = play_audits(params, rows, episodes, run.log)
    write_evaluation(params, rows, episodes, summary)
    run.log(0, arm_figures(summary))
    run.headline(headline_figures(summary), evaluation_note(summary))
    run.tag(corpus=describe_corpus(summary["corpus"]))
    run.tag(alarms=", ".join(name for audit in summary["audits"].values() for name in audit["alarms"]) or "none")
    run.dataset("test questions", QUESTIONS / "test.jsonl", "evaluation")
    for line in headline_words(summary).splitlines():
        say(line)


def join(params: Params) -> None:
    """Do the work of a further process of `accelerate launch -m tasks.evaluate`: play what the main one plays."""
    questions = draw_test_questions(params, QUESTIONS / "test.jsonl")
    rows, episodes = play_arms(params, questions, log_nothing, model=None)
    play_audits(params, rows, episodes, log_nothing)


def log_nothing(step: int, values: Mapping[str, float]) -> None:
    """Log nothing: the main process logs."""


if __name__ == "__main__":
    main("evaluate", evaluate, checks=True, join=join)
