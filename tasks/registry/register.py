"""New versions in the MLflow registry, and the alias ``candidate``, which names the model in models/.

A version is an arm of an evaluation, with a model that MLflow loads, the rows of its evaluation, its figures and
fingerprints. The same model with the same evaluation is one version, however often it is registered.
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from harr import __version__
from harr.arms import TRAINED
from harr.evaluate.summary import Summary
from harr.io.files import check_sums, digest_of, fingerprint, read_json, sha256
from harr.io.model_folder import check_publishable
from harr.merge.card import plain_facts, purpose
from harr.params import Params
from harr.services.model_registry import LOADABLE
from tasks.evaluation_record import PLAYED
from tasks.headline import evaluation_note, headline_figures
from tasks.paths import AUDITS, INPUTS, LOCK, SETTINGS, WORK
from tasks.registry.figures import describe, figure_tags
from tasks.registry.mlmodel import write_mlmodel
from tasks.tracking.errors import Refused, done_once, look_up, service, uploading
from tasks.tracking.fingerprints import requirements
from tasks.tracking.run import Run

CANDIDATE = "candidate"
LINEAGE = "lineage"
"""Folder of a version's run with what its model was made from."""
ROLLED_BACK = "rolled_back"
"""Tag of a champion that was rolled back; only a person makes it the candidate again."""
DESCRIPTIONS = {"retriever": "Retrievers of harr", "language_model": "Language models trained by harr"}
SAME = ("kind", "model", "results", "evaluation", "index", "corpus", "expectations", "rules")
"""Tags that equal versions share: what they are, showed and must show, whatever code and machine made them."""
AROUND = WORK / "merge" / "mlmodel"
"""Files around a model folder, until MLflow has them."""


def register(
    run: Run,
    params: Params,
    kind: Literal["retriever", "language_model"],
    folder: Path,
    evaluation: Path,
    tags: Mapping[str, str],
    summary: Summary,
    *,
    proposes: bool = True,
) -> str:
    """Make a version from a model folder and its evaluation, and return its number.

    An existing version of the same model and evaluation is reused.

    Args:
        run: the open run that keeps the files; it is linked with the server.
        params: their section tracking names the registered model.
        kind: what was trained; the files are kept under this name. A retriever becomes a model that MLflow loads.
        folder: safetensors and json of the model.
        evaluation: folder with the arms' rows, their audits and what they were played with, which are kept.
        tags: the arm, and fingerprints of data, index, code and evaluation; those of the model and of the environment
            are added.
        proposes: whether it becomes the candidate.
        summary: metrics/evaluate.json with contrasts; its leading figures go on the version and the parent run.

    Raises:
        ModelError: the folder holds something else, which might run code; nothing was sent.
        DamagedFile: a file of the model or of its evaluation changed since it was written.
        Refused: the artifact store refused the model.
        ServiceUnavailable: a server did not answer.
    """
    check_publishable(folder)
    check_sums(folder, "dvc repro -f -s merge")
    check_sums(evaluation, "dvc repro -f -s evaluate")
    run.headline(headline_figures(summary), evaluation_note(summary))
    run.send()
    name, rows = params.tracking.registered_model, _rows(params, evaluation)
    facts = {"kind": kind, "model": digest_of(folder), "results": results_of(params, evaluation), **tags}
    with service():
        existing = find_registered(run.client, name, facts, folder)
        version = existing or _make(run, params, folder, rows, facts, summary)
        if proposes:
            propose(run.client, name, version)
    return str(version.version)


def results_of(params: Params, evaluation: Path) -> str:
    """Return the hash that identifies an evaluation: of its files that a version keeps."""
    return fingerprint({name: sha256(path) for name, path in _rows(params, evaluation).items()})


def find_registered(client: Any, name: str, facts: Mapping[str, str], folder: Path) -> Any | None:
    """Return the newest complete version with the same facts, of those in ``SAME``; None if there is none."""
    if look_up(client.get_registered_model, name) is None:
        return None
    same = client.search_model_versions(f"name = '{name}' and tags.model = '{facts['model']}'")
    for version in sorted(same, key=lambda candidate: int(candidate.version), reverse=True):
        if all(version.tags.get(key) == facts[key] for key in SAME if key in facts) and not _find_missing(
            client, version.run_id, facts["kind"], folder
        ):
            return version
    return None


def propose(client: Any, name: str, version: Any, *, by_hand: bool = False) -> bool:
    """Give a version the alias ``candidate``, and return whether it has it.

    One that was rolled back gets it ``by_hand`` only, so that no run promotes it again.
    """
    if ROLLED_BACK in version.tags:
        if not by_hand:
            return False
        client.delete_model_version_tag(name, version.version, ROLLED_BACK)
    current = look_up(client.get_model_version_by_alias, name, CANDIDATE)
    if current is None or str(current.version) != str(version.version):
        client.set_registered_model_alias(name, CANDIDATE, version.version)
    return True


def _make(
    run: Run, params: Params, folder: Path, rows: Mapping[str, Path], facts: Mapping[str, str], summary: Summary
) -> Any:
    """Upload the files and make a new version from them."""
    name, kind = params.tracking.registered_model, facts["kind"]
    try:
        run.artifact(folder, place_of(kind))
        if kind == "retriever":
            write_mlmodel(AROUND, folder)
            run.artifact(AROUND, kind)
        for path in rows.values():
            run.artifact(path, "evaluation")
        for path in (LOCK, SETTINGS, INPUTS):  # every stage's parameters, and hashes of data and code
            if path.exists():
                run.artifact(path, f"{LINEAGE}/{path.name}" if path.is_dir() else LINEAGE)
        run.send()
    finally:
        shutil.rmtree(AROUND, ignore_errors=True)
    installed = requirements()
    with uploading("requirements.txt"):
        run.client.log_text(run.run_id, installed, "requirements.txt")
    if lost := _find_missing(run.client, run.run_id, kind, folder):
        raise Refused(
            f"MLflow did not take {', '.join(sorted(lost))} of {folder}, so no version is registered; see above"
        )
    if look_up(run.client.get_registered_model, name) is None:
        done_once(run.client.create_registered_model, name, description=DESCRIPTIONS[kind])
    environment = hashlib.sha256(installed.encode()).hexdigest()
    source = f"{run.client.get_run(run.run_id).info.artifact_uri}/{kind}"
    arm = facts.get("arm", TRAINED)  # first, since MLflow's table of versions shows the first tags
    all_tags = {"arm": arm, **figure_tags(summary, arm), **facts, "environment": environment}
    version = run.client.create_model_version(name, source, run_id=run.run_id, tags=all_tags, await_creation_for=0)
    what = f"By harr {__version__}: a {'retriever' if kind == 'retriever' else 'language model'}. "
    what += purpose(plain_facts(read_json(folder / "harr.json"))) if kind == "retriever" else ""
    described = describe(summary, what.strip(), name, str(version.version), loads=kind == "retriever")
    run.client.update_model_version(name, version.version, described)
    return version


def place_of(kind: str) -> str:
    """Return where a run keeps a model folder: a retriever one level deeper, below its MLmodel."""
    return f"{kind}/{LOADABLE}" if kind == "retriever" else kind


def _find_missing(client: Any, run_id: str, kind: str, folder: Path) -> set[str]:
    """Return the files of a model folder, and those around it, that a run lacks."""
    place = place_of(kind)
    files = {f"{place}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*") if path.is_file()}
    if kind == "retriever":
        files.add(f"{kind}/MLmodel")
    with uploading(str(folder)):
        return files - {file.path for file in list_files(client, run_id, kind)}


def list_files(client: Any, run_id: str, folder: str = "") -> Iterator[Any]:
    """Yield all files of a run in a folder and those below it, as MLflow describes them."""
    for file in client.list_artifacts(run_id, folder):
        yield from list_files(client, run_id, file.path) if file.is_dir else [file]


def _rows(params: Params, evaluation: Path) -> dict[str, Path]:
    """Return the files of an evaluation that a version keeps, by name."""
    arms = dict.fromkeys((TRAINED, params.baseline, *params.evaluate.arm_table))
    names = (*(f"{arm}.jsonl" for arm in arms), AUDITS, PLAYED)
    return {name: evaluation / name for name in names if (evaluation / name).exists()}
