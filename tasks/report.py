"""Stage report: plots of the arms and reports/index.html, from the outputs of stage evaluate. Nothing is played."""

from harr.io.files import read_state, read_state_rows
from harr.params import Params
from tasks.common import dataset_name, read_vectors_manifest
from tasks.evaluation_outputs import AGAIN, PLAYS, summary_here
from tasks.evaluation_record import corpus_facts, describe_corpus
from tasks.expectations.process import data_docs, words_of
from tasks.filter_outputs import statistics_rows
from tasks.paths import EVALUATION, METRICS, PLOTS, REPORT, STATS
from tasks.runtime.stage import main
from tasks.tracking.fingerprints import revisions
from tasks.tracking.run import Run
from tasks.trained_runs import read_run_figures


def draw_report(params: Params) -> dict[str, float]:
    """Plot the arms, write reports/index.html, and return how much it shows."""
    from harr.builders.methods import method_of
    from harr.evaluate.summary import flat_rows
    from harr.report.page import write_report
    from harr.report.plots import arms

    summary = summary_here()
    questions = read_state(EVALUATION / PLAYS, AGAIN)
    arms(flat_rows(summary), PLOTS / "arms.svg")
    write_report(
        REPORT,
        summary=summary,
        curve=read_state_rows(STATS, "run `dvc repro -f -s train`"),
        filter_rows=statistics_rows(),
        questions=questions,
        facts=run_facts(params),
        links=_links(),
        arms=params.evaluate.arm_table,
        candidates=params.evaluate.candidates,
        signal=method_of(params.train).figure,
    )
    return {"arms": len(params.evaluate.arm_table), "questions": len(questions.get("questions", ()))}


def _links() -> dict[str, str]:
    """Return the names and addresses of the other pages."""
    return {f"Checks of {words_of(suite)}": f"../{page}" for suite, page in data_docs().items()}


def _describe_groups() -> dict[str, str]:
    """Return how much each run of stage arms had to learn from."""
    runs = [
        f"{run} {100 * figures['zero_std_share']:.0f} % ({figures['questions']:.0f} questions)"
        for run, figures in read_run_figures().items()
    ]
    return {"Groups of the arms whose rollouts were all rewarded alike": ", ".join(runs)} if runs else {}


def run_facts(params: Params) -> dict[str, str]:
    """Return in words the facts about the run that make a report credible."""
    from harr.builders.methods import method_of

    vectors = read_vectors_manifest()
    filtered = read_state(METRICS / "filter.json", "run `dvc repro -f -s filter`", kept=float, tried=float)
    revision = revisions()
    facts = method_of(params.train).describe(params.train)
    method = facts.pop("method")
    over = "seeds and questions" if params.evaluate.seeds > 1 else "questions"
    edited = " (edited)" if revision["harr.edited"] == "true" else ""
    return {
        "Dataset": dataset_name(params),
        "Passages": f"{vectors['rows']:,}",
        "Corpus": describe_corpus(corpus_facts()),
        "Encoder": f"{params.encoder.model} ({vectors['dtype']} vectors)",
        **({"Encoder of states": params.retriever.encoder} if params.retriever.encoder else {}),
        "Index identity": vectors["identity"],
        "Pipeline": params.pipeline.name,
        "Generator": params.generator.kind,
        **({"Reader": params.evaluate.reader.kind} if params.evaluate.reader else {}),
        "Retriever": f"{params.retriever.k} of {params.retriever.pool}, temperature {params.retriever.temperature}",
        "Training": "; ".join([method, *(f"{name} {value}" for name, value in facts.items())]),
        "Training questions": f"{filtered['kept']:.0f} kept of {filtered['tried']:.0f} tried",
        **_describe_groups(),
        "Seed": str(params.seed),
        "Trained arms": f"{params.evaluate.seeds} seed(s) each; intervals are over {over}",
        "Git revision": revision["mlflow.source.git.commit"][:12] + edited,
    }


def report(params: Params, run: Run) -> None:
    """Plot the arms and write the report."""
    run.record("report", draw_report(params))
    run.artifact(REPORT)
    run.artifact(PLOTS / "arms.svg")


if __name__ == "__main__":
    main("report", report)
