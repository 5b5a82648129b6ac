"""The facts of a run that a report needs to be believed."""

from harr.io.files import read_state
from harr.params import Params
from tasks.common import read_vectors_manifest
from tasks.evaluation_record import corpus_facts, describe_corpus
from tasks.paths import METRICS
from tasks.tracking.fingerprints import revisions
from tasks.trained_runs import read_run_figures


def _describe_groups() -> dict[str, str]:
    """Return, of the runs of stage arms, how much each had to learn from."""
    runs = [
        f"{run} {100 * figures['zero_std_share']:.0f} % ({figures['questions']:.0f} questions)"
        for run, figures in read_run_figures().items()
    ]
    return {"Groups of the arms whose rollouts were all rewarded alike": ", ".join(runs)} if runs else {}


def run_facts(params: Params) -> dict[str, str]:
    """Return the facts of the run in words."""
    from harr.builders.methods import method_of

    vectors = read_vectors_manifest()
    filtered = read_state(METRICS / "filter.json", "run `dvc repro -f -s filter`", kept=float, tried=float)
    revision = revisions()
    facts = method_of(params.train).describe(params.train)
    method = facts.pop("method")
    over = "seeds and questions" if params.evaluate.seeds > 1 else "questions"
    edited = " (edited)" if revision["harr.edited"] == "true" else ""
    return {
        "Dataset": params.download.dataset,
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
