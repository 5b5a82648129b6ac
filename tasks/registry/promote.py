"""The MLflow registry: versions of what was trained, and the alias ``champion``.

A version carries the rows of its evaluation and its fingerprints. The alias moves only when every
condition of the gate holds (tasks/registry/gate.py).
"""

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from prefect import task

from harr.arms import FULL
from harr.errors import PromotionRefused
from harr.io.files import check_sums
from harr.io.model_folder import check_publishable
from harr.params import Params
from harr.report.promotion import table
from tasks.common import TASK
from tasks.paths import AUDIT
from tasks.registry.gate import judge
from tasks.tracking.client import open_client
from tasks.tracking.errors import Refused, found, service, taken, uploading
from tasks.tracking.execution import boot, identity, is_alive, machine, me
from tasks.tracking.fingerprints import requirements
from tasks.tracking.run import Run

CANDIDATE, CHAMPION, PREVIOUS = "candidate", "champion", "previous_champion"
LEASE_SECONDS, WAIT_SECONDS = 600.0, 60.0
HOLDER = re.compile(r"pid (\d+) \((\w+)-([\d.]+)\)$")
"""What a mark names: its process's number, the hash of its machine (``machine`` of execution.py), when it began."""
DESCRIPTIONS = {"retriever": "Query encoders trained by harr", "llm": "Language models trained by harr"}


def register(
    run: Run,
    params: Params,
    kind: Literal["retriever", "llm"],
    folder: Path,
    evaluation: Path,
    tags: Mapping[str, str],
) -> str:
    """Make a new version from a model folder and its evaluation rows; returns the version's number.

    Args:
        run: the open run that keeps the files; it is linked with the server.
        params: the section tracking names the registered model.
        kind: what was trained; the files are kept under this name.
        folder: safetensors and json of the model.
        evaluation: folder with the rows of the arms and their audit; those of ``full`` and of what it began as are
            kept, and the audit.
        tags: fingerprints of data, index, code and evaluation; that of the environment is added.

    Raises:
        ModelError: the folder holds something else, which might run code; nothing was sent.
        DamagedFile: a file of the model or of its evaluation changed since it was written.
        Refused: the artifact store did not take the model.
        ServiceUnavailable: a server did not answer.
    """
    name = params.tracking.registered_model
    check_publishable(folder)
    check_sums(folder, "dvc repro -f -s merge")
    check_sums(evaluation, "dvc repro -f -s evaluate")
    run.artifact(folder, kind)
    for path in (evaluation / f"{FULL}.jsonl", evaluation / f"{params.baseline}.jsonl", evaluation / AUDIT):
        if path.exists():
            run.artifact(path, "evaluation")
    installed = requirements()
    run.wait()
    with service(), uploading("requirements.txt"):
        run.client.log_text(run.run_id, installed, "requirements.txt")
        kept = {Path(name).relative_to(kind).as_posix() for name in _artifacts(run.client, run.run_id, kind)}
    if lost := {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - kept:
        raise Refused(
            f"MLflow did not take {', '.join(sorted(lost))} of {folder}, so no version is registered; see above"
        )
    if found(run.client.get_registered_model, name) is None:
        taken(run.client.create_registered_model, name, description=DESCRIPTIONS[kind])
    facts = {"kind": kind, "environment": hashlib.sha256(installed.encode()).hexdigest(), **tags}
    source = f"{run.client.get_run(run.run_id).info.artifact_uri}/{kind}"
    version = run.client.create_model_version(name, source, run_id=run.run_id, tags=facts, await_creation_for=0)
    run.client.set_registered_model_alias(name, CANDIDATE, version.version)
    return str(version.version)


def _artifacts(client: Any, run_id: str, folder: str) -> Iterator[str]:
    """Yield the paths of all files of a run in a folder and those below it."""
    for file in client.list_artifacts(run_id, folder):
        yield from _artifacts(client, run_id, file.path) if file.is_dir else [file.path]


@task(**TASK)
def promote(params: Params) -> str:
    """Move ``champion`` to the candidate if the gate lets it through; returns what was done.

    The conditions are printed, and kept as ``promotion.html`` with the candidate's run, refused or not.

    Raises:
        PromotionRefused: no candidate, or a condition of the gate does not hold.
    """
    with service():
        client, name = open_client(params), params.tracking.registered_model
        with alone(client, name):
            candidate = found(client.get_model_version_by_alias, name, CANDIDATE)
            champion = found(client.get_model_version_by_alias, name, CHAMPION)
            if candidate is None:
                raise PromotionRefused(f"registered model {name} has no candidate; run `dvc repro` first")
            verdict = judge(client, params, candidate, champion)
            with uploading("promotion.html"):
                client.log_text(candidate.run_id, verdict.page, "promotion.html")
            print(f"{table(verdict.conditions)}\nkept as promotion.html with run {candidate.run_id}")
            if verdict.refusal:
                raise PromotionRefused(f"{verdict.refusal}; the alias stays where it is")
            if champion:
                client.set_registered_model_alias(name, PREVIOUS, champion.version)
            client.set_registered_model_alias(name, CHAMPION, candidate.version)
            outcome = f"version {candidate.version} of {name} against {verdict.against}: {verdict.conditions[2].found}"
            client.set_model_version_tag(name, candidate.version, "promoted", outcome)
    return f"promoted: {outcome}"


@task(**TASK)
def rollback(params: Params) -> str:
    """Give ``champion`` back to the version before; returns what was done.

    The one that leaves is no ``candidate`` any more, so that the next run does not promote it again.

    Raises:
        PromotionRefused: there is no previous champion.
    """
    with service():
        client, name = open_client(params), params.tracking.registered_model
        with alone(client, name):
            previous = found(client.get_model_version_by_alias, name, PREVIOUS)
            champion = found(client.get_model_version_by_alias, name, CHAMPION)
            if previous is None or (champion and champion.version == previous.version):
                raise PromotionRefused(f"registered model {name} has no previous champion to go back to")
            candidate = found(client.get_model_version_by_alias, name, CANDIDATE)
            if candidate and champion and candidate.version == champion.version:
                client.delete_registered_model_alias(name, CANDIDATE)
            client.set_registered_model_alias(name, CHAMPION, previous.version)
            client.delete_registered_model_alias(name, PREVIOUS)
    left = f" (was version {champion.version})" if champion else ""
    return f"rolled back: champion of {name} is version {previous.version}{left}"


@contextmanager
def alone(client: Any, name: str) -> Iterator[None]:
    """Let one promotion or rollback of a model work at a time, on every machine that shares the store.

    MLflow moves an alias without looking at its old value, but its store makes a registered model of
    a given name only once: the model ``<name>.promotion`` exists while somebody is at work here, and
    whoever comes meanwhile waits. One whose process was of this machine and is gone, or that is older
    than LEASE_SECONDS, belongs to a process that died; it is renamed after its time of creation, which
    also works only once, and deleted. So two never work at the same time unless one takes longer than
    LEASE_SECONDS, for which it has seconds of work. One that dies between the two aliases leaves both
    at the old champion, and the next promotion goes on.

    Raises:
        PromotionRefused: another was at work for WAIT_SECONDS.
    """
    lock, deadline = f"{name}.promotion", time.monotonic() + WAIT_SECONDS
    here = identity()
    began = here["born"].rpartition(" ")[2] or f"{here['started']:.1f}"
    mark = f"A promotion under way, by {me()} ({machine()}-{began})"
    while not taken(client.create_registered_model, lock, description=mark):
        held = found(client.get_registered_model, lock)
        if held is None:
            continue
        if held.description == mark:  # the server went away before this process could take it off
            break
        if _died(held.description or "") or time.time() - held.creation_timestamp / 1000 > LEASE_SECONDS:
            _release_stale_lock(client, lock, held.creation_timestamp)
        elif time.monotonic() > deadline:
            raise PromotionRefused(f"{held.description} has {name} since {WAIT_SECONDS:.0f} s; try again later")
        else:
            time.sleep(0.3)
    try:
        yield
    finally:
        taken(client.delete_registered_model, lock)


def _died(mark: str) -> bool:
    """Return whether a mark is of a process of this machine that is gone; of another machine's nobody here can tell."""
    holder = HOLDER.search(mark)
    if holder is None or holder[2] != machine():
        return False
    born = "" if "." in holder[3] else f"{boot()} {holder[3]}"  # with a point: by the clock
    return not is_alive({"pid": int(holder[1]), "started": float(holder[3]), "born": born})


def _release_stale_lock(client: Any, lock: str, created: int) -> None:
    """Take the mark of a dead promotion off; one of several that try does it, and none takes a newer one."""
    grave = f"{lock}.abandoned-{created}"
    taken(client.rename_registered_model, lock, grave)
    taken(client.delete_registered_model, grave)
