"""The MLflow registry: versions of the merged retriever and the alias ``champion``.

A version carries the rows of its evaluation. The alias moves only when the paired interval of the
candidate against the champion, on the same questions, lies above 0.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task

from harr.errors import PromotionRefused
from harr.files import read_jsonl
from harr.params import Params
from tasks.common import TASK
from tasks.tracking import Run, found, open_client, service

CANDIDATE, CHAMPION, PREVIOUS = "candidate", "champion", "previous_champion"
Row = dict[str, Any]


def register(run: Run, params: Params, folder: Path, evaluation: Path, tags: Mapping[str, str]) -> str:
    """Make a new version from a model folder and its evaluation rows; returns the version's number.

    Args:
        run: the open run that keeps the files.
        params: the section tracking names the registered model.
        folder: safetensors and json of the merged model.
        evaluation: folder with the rows of the arms; ``full.jsonl`` and ``frozen.jsonl`` are kept.
        tags: fingerprints of data, index, code and evaluation.
    """
    name = params.tracking.registered_model
    run.artifact(folder, "retriever")
    for path in (evaluation / "full.jsonl", evaluation / "frozen.jsonl"):
        if path.exists():
            run.artifact(path, "evaluation")
    if found(run.client.get_registered_model, name) is None:
        run.client.create_registered_model(name, description="Query encoders trained by harr")
    source = f"{run.client.get_run(run.run_id).info.artifact_uri}/retriever"
    version = run.client.create_model_version(name, source, run_id=run.run_id, tags=dict(tags), await_creation_for=0)
    run.client.set_registered_model_alias(name, CANDIDATE, version.version)
    return str(version.version)


@task(**TASK)
def promote(params: Params) -> str:
    """Move ``champion`` to the candidate if it is better; returns the reason and the contrast as a table.

    The rival is the champion; where there is none yet, the candidate's own arm ``frozen``.

    Raises:
        PromotionRefused: no candidate, other questions, or an interval that does not lie above 0.
    """
    with service():
        client, name = open_client(params), params.tracking.registered_model
        candidate, champion = (
            found(client.get_model_version_by_alias, name, CANDIDATE),
            found(client.get_model_version_by_alias, name, CHAMPION),
        )
        if candidate is None:
            raise PromotionRefused(f"registered model {name} has no candidate; run `dvc repro` first")
        told = _judge(client, params, candidate, champion)
        if champion:
            client.set_registered_model_alias(name, PREVIOUS, champion.version)
        client.set_registered_model_alias(name, CHAMPION, candidate.version)
        client.set_model_version_tag(name, candidate.version, "promoted", told.splitlines()[0])
    return f"promoted: {told}"


def _judge(client: Any, params: Params, candidate: Any, champion: Any | None) -> str:
    """The reason why the candidate may become champion, or ``PromotionRefused`` with the reason why not."""
    from harr.evaluate import contrast

    if champion and champion.version == candidate.version:
        raise PromotionRefused(f"version {candidate.version} of {candidate.name} is the champion already")
    if champion and champion.tags.get("evaluation") != candidate.tags.get("evaluation"):
        raise PromotionRefused(
            f"champion {champion.version} and candidate {candidate.version} of {candidate.name} did not answer the "
            "same questions with the same index and pipeline; set params.yaml to the champion's (they are in its "
            "MLflow run) and `dvc repro`, or give the candidate a tracking.registered_model of its own"
        )
    rival, arm = (champion, "full") if champion else (candidate, "frozen")
    gains = contrast(
        _rows(client, candidate, "full"),
        _rows(client, rival, arm),
        resamples=params.evaluate.resamples,
        seed=params.seed,
    )
    if params.headline not in gains:
        raise PromotionRefused(
            f"version {candidate.version} was not measured in {params.headline}, the first of reward.terms; "
            f"it has {', '.join(gains)}"
        )
    gain = gains[params.headline]
    against = f"champion {champion.version}" if champion else "its own arm frozen (no champion yet)"
    told = (
        f"version {candidate.version} of {candidate.name} against {against}: {params.headline} "
        f"{gain['gain']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}], p {gain['p']:.2g}, n {gain['n']}"
    )
    if gain["low"] <= 0:
        raise PromotionRefused(f"{told}; the interval does not lie above 0, the alias stays where it is")
    return "\n".join([told, *_lines(gains)])


def _lines(gains: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The contrast as a table, a metric a line."""
    return [
        f"  {name:<18} {gain['gain']:+8.3f}  [{gain['low']:+.3f}, {gain['high']:+.3f}]  n {gain['n']}"
        for name, gain in gains.items()
    ]


@task(**TASK)
def rollback(params: Params) -> str:
    """Give ``champion`` back to the version before; returns what was done.

    Raises:
        PromotionRefused: there is no previous champion.
    """
    with service():
        client, name = open_client(params), params.tracking.registered_model
        previous, champion = (
            found(client.get_model_version_by_alias, name, PREVIOUS),
            found(client.get_model_version_by_alias, name, CHAMPION),
        )
        if previous is None:
            raise PromotionRefused(f"registered model {name} has no previous champion to go back to")
        client.set_registered_model_alias(name, CHAMPION, previous.version)
        client.delete_registered_model_alias(name, PREVIOUS)
    left = f" (was version {champion.version})" if champion else ""
    return f"rolled back: champion of {name} is version {previous.version}{left}"


def _rows(client: Any, version: Any, arm: str) -> Sequence[Row]:
    """The evaluation rows that were registered with a version."""
    kept = {Path(file.path).stem for file in client.list_artifacts(version.run_id, "evaluation")}
    if arm not in kept:
        raise PromotionRefused(
            f"version {version.version} of {version.name} has no rows of arm {arm}; "
            f"add {arm} to evaluate.arms and run `dvc repro`"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = client.download_artifacts(version.run_id, f"evaluation/{arm}.jsonl", folder)
        return read_jsonl(Path(path))
