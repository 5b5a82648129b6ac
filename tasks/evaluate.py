"""Stage evaluate: every arm on the same questions, with intervals, plots and a report."""

import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from prefect import task

from harr.arms import FULL
from harr.errors import CorpusError, DamagedFile, HarrError, ParamsError
from harr.io.files import (
    draft,
    read_state,
    read_state_rows,
    write_json,
    write_text,
)
from harr.params import Params
from harr.params.faults import describe_fault
from harr.types import Episode, Log, Pipeline, Question, Retriever
from tasks.arms import trained_runs
from tasks.common import GPU_TASK, TASK, report_usage
from tasks.embed import vectors_manifest
from tasks.filter import statistics_rows
from tasks.headline import headline_figures
from tasks.paths import AUDIT, EVALUATION, FILTERED, HEADLINE, METRICS, PLACES, PLOTS, REPORT, STATS, WORK
from tasks.played import FIGURES, PLAYED, figures, played, told_corpus
from tasks.samples import chosen, play_samples_of, with_samples
from tasks.tracking.run import told_params
from tasks.train import training_figure

if TYPE_CHECKING:
    from harr.evaluate.play import ArmRun, Game
    from harr.rag.scoring.reward import Reward
    from harr.report.differences import Champion

EVALUATE, AGAIN = METRICS / "evaluate.json", "run `dvc repro evaluate`"
Row = dict[str, Any]
Rows = list[Row]


def asked_questions(params: Params, path: Path) -> list[Question]:
    """Return the questions that every arm plays."""
    from harr.corpus.passages import read_questions
    from harr.corpus.sample import draw_questions

    return draw_questions(read_questions(path), params.evaluate.max_questions, params.seed)


@task(**GPU_TASK)
def play_arms(
    params: Params, questions: Sequence[Question], log: Log, *, model: Path | None
) -> tuple[dict[str, list[Rows]], dict[str, list[Episode]]]:
    """Play every arm, every seed of a trained one, everywhere ``evaluate.candidates`` says.

    Returns:
        Question rows per arm, one list per seed; and the episodes of the first seed and the first kind of candidates.
    """
    from harr.builders.pipeline import build_reward
    from harr.builders.setup import open_players, open_writer
    from harr.builders.writers import build_generator, build_reader
    from harr.evaluate.play import ArmRun, Game
    from harr.evaluate.rows import join_candidates

    runs, pipelines, writes = arm_runs(params, model), arm_pipelines(params), params.writer_learns
    reward = build_reward(params.reward, params.encoder, params.seed, PLACES)
    reader = build_reader(params.evaluate.reader, params.seed, PLACES)
    generator = None if writes else build_generator(params.generator, params.seed, PLACES)

    def game(run: ArmRun, desc: str, retriever: Retriever) -> Game:
        writer = open_writer(params, PLACES, run.arm, run.folder) if writes else generator
        return Game(desc, pipelines[run.name], retriever, writer, reader)

    rows: list[dict[str, Rows]] = [{} for _ in runs]
    shown: dict[str, list[Episode]] = {}
    several = len(params.evaluate.candidates) > 1
    for candidates in params.evaluate.candidates:
        asked = [q for q in questions if q.candidate_ids] if candidates == "question" else questions
        with open_players(params, PLACES, asked, candidates=candidates) as player:
            for run, found in zip(runs, rows, strict=True):
                desc = (str(run) if run.folder else run.name) + (f" ({candidates})" if several else "")
                own = game(run, desc, player(run.arm, run.folder))
                episodes, found[candidates] = play_run(params, run, own, asked, reward, log)
                shown.setdefault(run.name, episodes)
                del own
                if run.folder or writes:  # a model is a reference cycle; one is loaded at a time
                    gc.collect()
    report_usage(log, generator=generator, reader=reader, judge=reward)
    by_arm: dict[str, list[Rows]] = {run.name: [] for run in runs}
    for run, by_candidates in zip(runs, rows, strict=True):
        by_arm[run.name].append(join_candidates(by_candidates))
    return by_arm, shown


def arm_runs(params: Params, model: Path | None) -> "list[ArmRun]":
    """Return the runs of all arms, in order; ``model`` stands for all seeds of ``full``."""
    from harr.evaluate.play import ArmRun

    folders = trained_runs(params) | ({FULL: [model]} if model else {})
    return [
        ArmRun(name, arm, number, folder)
        for name, arm in params.evaluate.arm_table.items()
        for number, folder in enumerate(folders.get(name, [None]))
    ]


def play_run(
    params: Params, run: "ArmRun", game: "Game", questions: Sequence[Question], reward: "Reward", log: Log
) -> tuple[list[Episode], Rows]:
    """Return the episodes of one run, and a row of metrics per question."""
    from harr.evaluate.play import pass_rates

    section = params.evaluate
    groups = play_samples_of(params, run, game, questions)
    episodes, paid = chosen(params, run, game, questions, groups, log)
    report_usage(log, **({str(run): game.generator} if params.writer_learns else {}), sources=game.retriever)
    lost = [step.retrieval.shortened for episode in episodes for step in episode.steps]
    if dropped := sum(own.dropped for own in lost):
        print(f"{game.desc}: {dropped} hops left out of states longer than retriever.max_tokens")
    if cut := sum(own.thought_cut for own in lost):
        print(f"{game.desc}: {cut} thoughts cut in states longer than retriever.max_tokens")
    rows = game.rows(episodes, reward.means(episodes), picking=params.pipeline.name == "pick")
    if section.pass_at and not params.writer_learns:
        warmth, ks = section.sample_temperature, section.pass_at
        rates = pass_rates(questions, game, samples=section.samples, ks=ks, seed=run.number, temperature=warmth)
        rows = [row | rates.get(row["id"], {}) for row in rows]
    return episodes, with_samples(params, rows, groups, paid)


def arm_pipelines(params: Params) -> dict[str, Pipeline]:
    """Return the pipeline of every arm: of leret, some are shown demonstrations.

    Raises:
        CorpusError: stage filter has found none. IndexMismatch: it searched another index than this one, or ordered
            what it found by another ``retriever.late_interaction``.
    """
    from harr.builders.pipeline import build_pipeline
    from harr.preferences.collect import check_index
    from harr.preferences.few_shot import read_demonstrations
    from harr.rag.pipelines.leret import LeReT
    from harr.rag.retrieval.late_interaction import search_identity

    pipeline = build_pipeline(params.pipeline, params.generator, PLACES)
    if not isinstance(pipeline, LeReT):
        return dict.fromkeys(params.evaluate.arm_table, pipeline)
    index = vectors_manifest()["identity"]
    check_index(FILTERED, search_identity(index, params.retriever.late_interaction))
    return {
        name: replace(pipeline, demonstrations=read_demonstrations(arm.demonstrations, FILTERED))
        for name, arm in params.evaluate.arm_table.items()
    }


@task(**TASK)
def summarise_arms(params: Params, rows: Mapping[str, list[Rows]]) -> dict[str, Any]:
    """Return means, gains over the baseline and contrasts of ``full``, with intervals over seeds and questions."""
    from harr.evaluate.summary import summarise

    arms, resamples = params.evaluate.arm_table, params.evaluate.resamples
    found: dict[str, Any] = summarise(rows, baseline=params.baseline, arms=arms, resamples=resamples, seed=params.seed)
    return found


@task(**TASK)
def evaluation_frame(rows: Mapping[str, list[Rows]]) -> pd.DataFrame:
    """Return all rows of all arms and their seeds as one table for the suite ``evaluation``."""
    runs = [(arm, run, arm_rows) for arm, by_seed in rows.items() for run, arm_rows in enumerate(by_seed)]
    asked = {row["id"] for _, _, arm_rows in runs for row in arm_rows}
    frame = pd.DataFrame(
        {
            "arm": f"{arm}-{run}",
            "id": row["id"],
            "questions_missing": len(asked) - len(arm_rows),
            "recall": row.get("recall"),
            "answer_f1": row.get("answer_f1"),
        }
        for arm, run, arm_rows in runs
        for row in arm_rows
    )
    return frame.astype({"recall": float, "answer_f1": float})


@task(**TASK)
def write_evaluation(
    params: Params, rows: Mapping[str, list[Rows]], episodes: Mapping[str, list[Episode]], summary: dict[str, Any]
) -> None:
    """Write the figures in metrics/, and with their hashes question rows, trajectories, audit and what was played."""
    from harr.evaluate.summary import CONTRASTS
    from harr.report.examples import trajectories

    write_json(METRICS / "evaluate.json", rounded({name: part for name, part in summary.items() if name != CONTRASTS}))
    write_json(METRICS / "contrasts.json", rounded(summary[CONTRASTS]))
    with draft(WORK / "evaluate" / "evaluation", EVALUATION) as folder:
        for arm, by_seed in rows.items():
            for seed, arm_rows in enumerate(by_seed, start=params.seed):
                lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in arm_rows]
                write_text(folder / (f"{arm}.jsonl" if seed == params.seed else f"{arm}-{seed}.jsonl"), "".join(lines))
        write_json(folder / "trajectories.json", trajectories(episodes, baseline=params.baseline, seed=params.seed))
        write_json(folder / AUDIT, rounded(summary.get("audit", {})))
        write_json(folder / PLAYED, played(params) | {FIGURES: figures()})
    write_json(HEADLINE, headline_figures(summary))


@task(**TASK)
def plot_and_report(
    params: Params,
    summary: dict[str, Any],
    rows: Mapping[str, list[Rows]],
    episodes: Mapping[str, list[Episode]],
    facts: Mapping[str, str],
    links: Mapping[str, str],
    occlusion: Mapping[str, Any] | None = None,
    changed: Mapping[str, Any] | None = None,
) -> None:
    """Draw the arms and recall by hop, and write reports/index.html."""
    from harr.evaluate.summary import flat_rows
    from harr.report.page import write_report
    from harr.report.plots import arms, hops

    arms(flat_rows(summary), PLOTS / "arms.svg")
    hops(flat_rows(summary), PLOTS / "hops.svg")
    write_report(
        REPORT,
        summary=summary,
        occlusion=occlusion or {},
        curve=training_curve(),
        filter_rows=statistics_rows(),
        rows={arm: by_seed[0] for arm, by_seed in rows.items()},
        episodes=episodes,
        facts=facts,
        links=links,
        arms=params.evaluate.arm_table,
        candidates=params.evaluate.candidates,
        changed=changed or {},
        signal=training_figure(params),
    )


def changes_of(params: Params, rows: Mapping[str, list[Rows]], champion: "Champion | None") -> dict[str, Any]:
    """Return what this run and the champion differ in."""
    from harr.report.differences import changes

    section, ours = params.evaluate, rows.get(FULL, [[]])[0]
    return changes(champion, told_params(params), ours, resamples=section.resamples, seed=params.seed)


def training_curve() -> list[dict[str, Any]]:
    """Read the figures of every step that stage train wrote."""
    return read_state_rows(STATS, "run `dvc repro -f -s train`")


def rounded(value: Any) -> Any:
    """Round figures to six decimals, so that a file changes only when a result does.

    >>> rounded({"mean": 0.12345678, "n": 3})
    {'mean': 0.123457, 'n': 3}
    """
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def evaluate_file(
    params: Params, questions: Path, out: Path, model: Path | None, arms: Sequence[str], run: Path | None = None
) -> None:
    """Play arms (none: those of params.yaml) on the questions of any file and write the metrics.

    Needs the index of this corpus. ``full`` is the merged ``model`` folder, or models/adapter where none is given.
    ``run``: a folder for the rankings of all arms, as other tools read them (:func:`harr.evaluate.trec.write_runs`).

    Raises:
        ParamsError: an arm does not go with params.yaml.
        CorpusError: the questions cannot be read, or ``out`` cannot be written; nothing was played.
    """
    from harr.datasets.local import read_question_file
    from harr.evaluate.tables import table
    from harr.evaluate.trec import write_runs

    params = with_arms(params, arms) if arms else params
    if not questions.is_file():
        what = "is no file" if questions.exists() else "is missing"
        raise CorpusError(f"--questions {questions} {what}; name a file of questions (README: Your own data)")
    check_out(out, questions)
    asked = list(read_question_file(questions))
    if len({question.id for question in asked}) < max(1, len(asked)):
        raise CorpusError(f"--questions {questions} {'repeats question ids' if asked else 'holds no question'}")
    rows, _ = play_arms.fn(params, asked, lambda step, values: None, model=model)
    summary = summarise_arms.fn(params, rows)
    write_json(out, rounded(summary))
    if run:
        write_runs(run, rows, asked, seed=params.seed)
    print(table(summary))


def with_arms(params: Params, arms: Sequence[str]) -> Params:
    """Return the parameters with other ``evaluate.arms``, checked as params.yaml is; without ``full`` nothing is hidden
    from it (``evaluate.occlusion``).

    Raises:
        ParamsError: an arm does not go with the other parameters.
    """
    values = params.model_dump(exclude_unset=True)
    own = {arm.name: arm.model_dump() for arm in params.evaluate.arms if not isinstance(arm, str)}
    values["evaluate"] = {**values.get("evaluate", {}), "arms": tuple(own.get(name, name) for name in arms)}
    if FULL not in arms:
        values["evaluate"].pop("occlusion", None)
    try:
        return Params.model_validate(values)
    except ValueError as error:  # pydantic's, which alone knows what is wrong
        said = [describe_fault(fault, Params) for fault in getattr(error, "errors", list)()]
        raise ParamsError("; ".join(f"--arms {' '.join(arms)}: {fault}" for fault in said)) from None


def check_out(out: Path, questions: Path) -> None:
    """See that figures can be written to ``out``, before there are any.

    Raises:
        CorpusError: it is a folder, a device or the questions themselves, or cannot be written.
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


def summary_here() -> dict[str, Any]:
    """Return metrics/evaluate.json, with metrics/contrasts.json as ``contrasts``.

    Raises:
        DamagedFile: there is none, or it is damaged.
    """
    summary = read_state(EVALUATE, AGAIN, arms=dict, paired=dict)
    if (contrasts := METRICS / "contrasts.json").exists():
        summary["contrasts"] = read_state(contrasts, AGAIN)
    return summary


def show(width: int = 100, *, markdown: bool = False) -> str:
    """Return the arms table of the last evaluation, in so many columns if it can, or as Markdown.

    Raises:
        DamagedFile: there is none, or it is damaged.
    """
    from harr.evaluate.tables import table

    summary = summary_here()
    try:
        told = f"\n\ncorpus {told_corpus(summary['corpus'])}" if "corpus" in summary else ""
        return table(summary, width, markdown=markdown) + told
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, HarrError):
            raise
        raise DamagedFile(f"{EVALUATE} is damaged ({error!r}); {AGAIN}") from None
