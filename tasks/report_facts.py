"""The facts of a run that a report needs to be believed."""

from harr.io.files import read_state
from harr.params import Params
from harr.params.train import LeReTParams
from tasks.embed import vectors_manifest
from tasks.paths import METRICS
from tasks.tracking.fingerprints import revisions


def run_facts(params: Params) -> dict[str, str]:
    """What was run, in a person's words."""
    vectors = vectors_manifest()
    filtered = read_state(METRICS / "filter.json", "run `dvc repro -f -s filter`", kept=float, tried=float)
    revision = revisions()
    edited = " (edited)" if revision["harr.edited"] == "true" else ""
    return {
        "Dataset": params.download.dataset,
        "Passages": f"{vectors['rows']:,}",
        "Encoder": f"{params.encoder.model} ({vectors['dtype']} vectors)",
        "Index identity": vectors["identity"],
        "Pipeline": params.pipeline.name,
        "Generator": params.generator.kind,
        **({"Reader": params.evaluate.reader.kind} if params.evaluate.reader else {}),
        "Retriever": f"{params.retriever.k} of {params.retriever.pool}, temperature {params.retriever.temperature}",
        "Training": f"{params.train.method}, {training(params)}",
        "Training questions": f"{filtered['kept']:.0f} kept of {filtered['tried']:.0f} tried",
        "Seed": str(params.seed),
        "Trained arms": f"{params.evaluate.seeds} seed(s) each, averaged per question; intervals are over questions",
        "Git revision": revision["mlflow.source.git.commit"][:12] + edited,
    }


def training(params: Params) -> str:
    """How long was trained, and at what rate."""
    train = params.train
    if isinstance(train, LeReTParams):
        return (
            f"SFT {train.sft_epochs} epoch(s) of batch {train.sft_batch} at {train.sft_learning_rate:g}, IPO "
            f"{train.ipo_epochs} of {train.ipo_batch} at {train.ipo_learning_rate:g}, margin "
            f"{train.ipo_target_margin_nats:g} nats"
        )
    return (
        f"{train.steps} steps of {train.questions_per_step} x {train.group_size} rollouts, learning rate "
        f"{train.learning_rate:g}"
    )
