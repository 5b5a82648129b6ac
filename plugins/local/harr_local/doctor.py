"""What `harr doctor` checks: packages, git, params.yaml, and the servers that it names, with their keys.

It changes nothing. Every check is a function that returns findings. `harr status` says where the project stands.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from flows.finding import DEADLINE_SECONDS, Finding, describe_failure, fail, ok, warn
from flows.versions import check_answer
from harr.errors import ParamsError, bare, one_line
from harr.params import Params
from harr.params.fields import Section
from harr.params.loop import LoopParams
from harr.project.create import BEGIN_GIT
from harr_local import asked
from harr_local.servers import list_ended
from tasks.tracking.client import address_of
from tasks.tracking.errors import setting_of

EXTRAS = ("", "pipeline", "lite", "minilm")
"""Packages of the extra pipeline."""


def examine(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Run all checks at once; return the findings in a fixed order. A check that fails to run is also a finding."""
    checks: dict[str, Callable[[], list[Finding]]] = {
        "packages": partial(check_packages, root),
        "git": partial(check_git, root),
        "harr up": partial(check_started, root),
    }
    try:
        params = asked.read_plugins(Params.load(root / "params.yaml"))
    except ParamsError as error:
        mend = "correct it, or copy one of recipes/*.yaml"
        findings = [fail("params.yaml", "; ".join(str(error).splitlines()), mend)]
    else:
        findings = [ok("params.yaml", "valid"), *_unread_sections(params)]
        checks["train.optimizer.precision"] = partial(check_precision, params)
        checks["MLflow"] = partial(check_mlflow, params, environment)
        for server in asked.servers(params):
            for url in server.urls:
                checks[f"{server.section} at {bare(url)}"] = partial(asked.check_model_server, server, url, environment)
        if params.index.uri:
            checks["Milvus"] = partial(asked.check_milvus, params.index.uri)
    pool = ThreadPoolExecutor(len(checks))
    for name, future in [(name, pool.submit(check)) for name, check in checks.items()]:
        try:
            findings += future.result(DEADLINE_SECONDS)
        except Exception as error:
            what, _, fix = describe_failure(error).rpartition("; ")
            findings.append(fail(name, what or fix, fix if what else "mend what it names"))
    return findings


def check_packages(root: Path) -> list[Finding]:
    """Check for packages of the pipeline that are missing or have a version it does not accept."""
    wrong = []
    for package in map(Requirement, metadata.requires("harr") or ()):
        if package.name != "harr" and (
            package.marker is None or any(package.marker.evaluate({"extra": extra}) for extra in EXTRAS)
        ):
            try:
                have = metadata.version(package.name)
            except metadata.PackageNotFoundError:
                wrong.append(f"{package.name} is missing")
            else:
                if not package.specifier.contains(have, prereleases=True):
                    wrong.append(f"{package.name} {have}, expected {package.specifier}")
    source = "--editable '.[pipeline]'" if (root / "pyproject.toml").exists() else "'harr[pipeline]'"
    if wrong:
        return [fail("packages", ", ".join(wrong), f"pip install --constraint constraints.txt {source}")]
    return [ok("packages", "all are there, in versions that fit")]


def check_precision(params: Params) -> list[Finding]:
    """Check whether training asks for products that this machine has to emulate."""
    if not isinstance(params.train, LoopParams) or params.train.optimizer.precision != "bfloat16":
        return []
    from harr.compute.precision import multiplies_bfloat16  # imports torch, which takes seconds

    if multiplies_bfloat16():
        return []
    slow = "bfloat16, which nothing here multiplies: a step takes ten times as long as in float32, or longer"
    return [warn("train.optimizer.precision", slow, "if this machine trains, set auto")]


def check_git(root: Path) -> list[Finding]:
    """Check whether git is installed, the folder is in a repository, and dvc.lock is committed."""
    if shutil.which("git") is None:
        return [warn("git", "is not installed; runs are not tied to a commit", "install git")]
    local = root / ".dvc/config.local"
    knows_no_git = local.exists() and "no_scm" in local.read_text()
    command = ["git", "status", "--porcelain", "--", "dvc.lock"]
    english = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=root, env=english, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    if done.returncode:
        begin = BEGIN_GIT if knows_no_git else "git init"
        new = f"{begin} && git add . && git commit -m start"
        mend = new if "not a git repository" in done.stderr else "run `git status` there; git says what to do"
        return [warn("git", one_line(done.stderr), mend)]
    if knows_no_git:
        state = "a repository, but core.no_scm is set in .dvc/config.local: `dvc exp run` refuses"
        return [warn("git", state, BEGIN_GIT.partition(" && ")[2])]
    if done.stdout:
        fix = "git add dvc.lock metrics plots && git commit -m 'Results'"
        return [warn("git", "dvc.lock is not committed as it is; others cannot reproduce these results", fix)]
    return [ok("git", "a repository, and no dvc.lock waits to be committed")]


def check_started(root: Path) -> list[Finding]:
    """Check for processes that `harr up` started and that ended by themselves."""
    return [warn(name, "ended without `harr down`", "harr up") for name in list_ended(root)]


def check_mlflow(params: Params, environment: Mapping[str, str]) -> list[Finding]:
    """Check whether MLflow's server answers; a store in a file needs none."""
    address = address_of(params, environment)
    check_answer(address, setting_of(address, environment))
    return [ok("MLflow", bare(address))]


def _unread_sections(params: Params) -> list[Finding]:
    """Return the sections of plug-ins that no installed package reads."""
    mend = "correct its name, or install the package; `harr --help` has the commands of those that are installed"
    return [
        warn(f"plugins.{name}", "no installed package reads it", mend)
        for name, section in params.plugins.items()
        if not isinstance(section, Section)
    ]
