"""The facts of a run that a report needs to be believed."""

from pathlib import Path

from harr.files import read_json
from harr.params import Params
from tasks.embed import VECTORS
from tasks.fingerprints import revisions


def run_facts(params: Params) -> dict[str, str]:
    """What was run, in a person's words."""
    vectors = read_json(VECTORS / "manifest.json")
    filtered = read_json(Path("metrics/filter.json"))
    revision = revisions()
    edited = " (edited)" if revision["harr.edited"] == "true" else ""
    return {
        "Dataset": params.download.dataset,
        "Passages": f"{vectors['rows']:,}",
        "Encoder": f"{params.encoder.model} ({vectors['dtype']} vectors)",
        "Index identity": vectors["identity"],
        "Pipeline": params.pipeline.name,
        "Generator": params.generator.kind,
        "Retriever": f"{params.retriever.k} of {params.retriever.pool}, temperature {params.retriever.temperature}",
        "Training": f"{params.train.method}, {params.train.steps} steps of {params.train.questions_per_step} x "
        f"{params.train.group_size} rollouts, learning rate {params.train.learning_rate:g}",
        "Training questions": f"{filtered['kept']:.0f} kept of {filtered['tried']:.0f} tried",
        "Seed": str(params.seed),
        "Trained arms": f"{params.evaluate.seeds} seed(s) each, averaged per question; intervals are over questions",
        "Git revision": revision["mlflow.source.git.commit"][:12] + edited,
    }
