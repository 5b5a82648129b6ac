"""Evaluation over lengths, beside the stages: a trained retriever in documents of every length."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harr.datasets import BabiLong, Ruler
from harr.errors import ParamsError
from harr.files import write_json
from harr.params import Params
from tasks.train import ADAPTER

LENGTHS = Path("models/lengths")


def play_lengths(
    params: Params, lengths: Sequence[int], *, model: Path | None, seed: int, questions: int, out: Path
) -> list[dict[str, Any]]:
    """Play the test stories at every length; logs, a table as JSON and a plot go to ``out``.

    Logs are named eval_seed{seed}_ns{sentences}.jsonl; one that is there is continued.

    Raises:
        ParamsError: the data set has no stories that could be told in longer documents.
    """
    from harr.build import build_towers
    from harr.corpus.haystack import longer
    from harr.lengths import by_length, play_documents
    from harr.params import Pick
    from harr.plots import lengths_plot

    told = params.download
    if not isinstance(told, BabiLong | Ruler) or not isinstance(params.pipeline, Pick):
        raise ParamsError(
            "evaluation over lengths needs download.dataset babilong or ruler and pipeline.name pick; "
            "see recipes/qrag_babilong_small.yaml"
        )
    told = told.model_copy(update={"seed": seed, "test_questions": questions or told.test_questions})
    towers = build_towers(params, model or ADAPTER)
    rows_of = {
        sentences: play_documents(
            longer(told, sentences),
            towers,
            out / f"eval_seed{seed}_ns{sentences}.jsonl",
            picks=params.pipeline.picks,
            total=told.test_questions,
            desc=f"{sentences:,} sentences",
        )
        for sentences in lengths
    }
    table = list(by_length(rows_of, params.evaluate.resamples, params.seed))
    write_json(out / "lengths.json", table)
    lengths_plot(table, out / "lengths.svg")
    return table
