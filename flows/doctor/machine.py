"""Checks of the machine: installed versions and git."""

import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import HarrError
from harr.project.create import BEGIN_GIT

INSTALL = "pip install --constraint constraints.txt --editable '.[pipeline]'"
FROM_WHEEL = "pip install --constraint constraints.txt 'harr[pipeline]'"
BROKEN = {
    "fastapi": ("0.151", "stops every Prefect flow run (seen from 0.155 on)"),
    "sqlalchemy": ("2.1", "lets no Prefect schedule fire, silently"),
}
"""Versions from which on Prefect 3.8 breaks; pip does not see it."""


def check_versions(root: Path) -> list[Finding]:
    """Look for versions known to break Prefect, and for missing dependencies."""
    # of two of a name, that of the first folder of sys.path
    packages = [one for one in reversed(list(metadata.distributions())) if one.name]
    have: dict[str, str] = {canonicalize_name(one.name): one.version for one in packages}
    findings = [
        fail(name, f"{have[name]} {effect}", f'pip install "{name}<{bound}"')
        for name, (bound, effect) in BROKEN.items()
        if name in have and Version(have[name]) >= Version(bound)
    ]
    if missing := sorted(_required("pipeline") - set(have)):
        install = INSTALL if (root / "pyproject.toml").exists() else FROM_WHEEL
        findings.append(fail("packages", f"not installed: {', '.join(missing)}", install))
    return findings or [ok("packages", "all are there, and none is known to break Prefect")]


def _required(extra: str) -> set[str]:
    """Return the names of what harr requires, by itself and by an ``extra`` with those that it names."""
    declared = [Requirement(line) for line in metadata.requires("harr") or ()]
    needed = [package for package in declared if package.marker is None or package.marker.evaluate({"extra": extra})]
    nested = {name for package in needed if package.name == "harr" for name in package.extras}
    return set().union({canonicalize_name(package.name) for package in needed} - {"harr"}, *map(_required, nested))


def check_git(root: Path) -> list[Finding]:
    """Look whether git is there, the folder is a repository, and dvc.lock is committed."""
    if shutil.which("git") is None:
        return [warn("git", "is not installed; runs are not tied to a commit", "install git")]
    local = root / ".dvc/config.local"
    knows_no_git = local.exists() and "no_scm" in local.read_text()
    env = {**os.environ, "LC_ALL": "C"}  # git's words are compared
    words = ["git", "status", "--porcelain", "--", "dvc.lock"]
    try:
        done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True, timeout=2)
    except subprocess.TimeoutExpired:
        raise HarrError("git did not answer within two seconds; run this again") from None
    if done.returncode:
        begin = f"{BEGIN_GIT if knows_no_git else 'git init'} && git add . && git commit -m start"
        said = done.stderr.strip().splitlines()[0]
        return [warn("git", said, begin if "not a git repository" in said else "do what git says")]
    if knows_no_git:
        state = "a repository, but core.no_scm is set in .dvc/config.local: `dvc exp run` refuses"
        return [warn("git", state, BEGIN_GIT.partition(" && ")[2])]
    if done.stdout:
        fix = "git add dvc.lock metrics plots && git commit -m 'Results'"
        return [warn("git", "dvc.lock is not committed as it is; others cannot reproduce these results", fix)]
    return [ok("git", "a repository, and no dvc.lock waits to be committed")]
