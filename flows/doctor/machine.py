"""Checks of the machine: installed versions and git."""

import os
import shutil
import subprocess
from collections.abc import Mapping
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
DRIVER = Path("/proc/driver/nvidia/version")
"""Where NVIDIA's driver says its version."""


def check_versions(root: Path) -> list[Finding]:
    """Look for versions known to break Prefect, missing dependencies, and what differs from constraints.txt."""
    findings, have = [], installed_versions()
    install = INSTALL if (root / "pyproject.toml").exists() else FROM_WHEEL
    for name, (bound, effect) in BROKEN.items():
        version = have.get(name)
        if version and Version(version) >= Version(bound):
            findings.append(fail(name, f"{version} {effect}", f'pip install "{name}<{bound}"'))
        elif version:
            findings.append(ok(name, version))
    if missing := sorted(_direct("pipeline") - set(have)):
        findings.append(fail("packages", f"not installed: {', '.join(missing)}", install))
    findings += _against_constraints(root / "constraints.txt", have, install)
    return findings + _check_gpu(have.get("torch", ""), DRIVER)


def _check_gpu(version: str, driver: Path) -> list[Finding]:
    """Look whether torch computes on the GPU that a driver is there for; else all would go on the CPU, unnoticed."""
    if not driver.exists():
        return []
    if version.endswith("+cpu"):
        return [warn("torch", f"{version} cannot use this machine's GPU", "install torch's CUDA build")]
    import torch  # takes a second

    if torch.cuda.is_available():
        return [ok("torch", f"{version} computes on {torch.cuda.get_device_name()}")]
    have = driver.read_text(encoding="utf-8").splitlines()[0].split("Module")[-1].split()[0]
    fix = "update the NVIDIA driver, install torch for an older CUDA, or unset CUDA_VISIBLE_DEVICES"
    return [
        warn("torch", f"{version} sees no GPU: driver {have}, CUDA {torch.version.cuda}; all would be on the CPU", fix)
    ]


def _against_constraints(path: Path, have: Mapping[str, str], install: str) -> list[Finding]:
    if not path.exists():
        return []
    pins = [line.partition("==") for line in path.read_text(encoding="utf-8").splitlines() if "==" in line]
    versions = [(name.strip(), pinned.strip(), have.get(canonicalize_name(name.strip()))) for name, _, pinned in pins]
    other = [f"{name} {now} (pinned {want})" for name, want, now in versions if now and now.split("+")[0] != want]
    if other:
        more = f" and {len(other) - 4} more" if len(other) > 4 else ""
        return [warn("versions", f"not those of constraints.txt: {', '.join(other[:4])}{more}", install)]
    return [ok("versions", f"{sum(now is not None for _, _, now in versions)} packages as in constraints.txt")]


def installed_versions() -> dict[str, str]:
    """Return the version of every installed package; of two of a name, that of the first folder of sys.path.

    >>> sorted({"fastapi", "prefect", "sqlalchemy"} - set(installed_versions()))
    []
    """
    return {canonicalize_name(d.name): d.version for d in reversed(list(metadata.distributions())) if d.name}


def _direct(extra: str = "") -> set[str]:
    """Return the names of what harr requires, by itself and by an ``extra`` with those that it names."""
    try:
        declared = [Requirement(line) for line in metadata.requires("harr") or ()]
    except metadata.PackageNotFoundError:
        return set()
    needed = [package for package in declared if package.marker is None or package.marker.evaluate({"extra": extra})]
    nested = {name for package in needed if package.name == "harr" for name in package.extras}
    return set().union({canonicalize_name(package.name) for package in needed} - {"harr"}, *map(_direct, nested))


def check_git(root: Path) -> list[Finding]:
    """Look whether git is there, the folder is a repository, and dvc.lock is committed."""
    if shutil.which("git") is None:
        return [warn("git", "is not installed; runs are not tied to a commit", "install git")]
    local = root / ".dvc/config.local"
    knows_no_git = local.exists() and "no_scm" in local.read_text()
    try:
        changes = git(root, "status", "--porcelain", "--", "dvc.lock")
    except HarrError as error:
        begin = f"{BEGIN_GIT if knows_no_git else 'git init'} && git add . && git commit -m start"
        return [warn("git", str(error), begin if "not a git repository" in str(error) else "do what git says")]
    if knows_no_git:
        state = "a repository, but core.no_scm is set in .dvc/config.local: `dvc exp run` refuses"
        return [warn("git", state, BEGIN_GIT.partition(" && ")[2])]
    if not (root / "dvc.lock").exists():
        return [ok("git", "a repository; no dvc.lock yet")]
    if changes:
        what = "is not committed" if changes.startswith("??") else "has changes that are not committed"
        fix = "git add dvc.lock metrics plots && git commit -m 'Results'"
        return [warn("git", f"dvc.lock {what}; others cannot reproduce these results", fix)]
    return [ok("git", "dvc.lock is committed")]


def git(root: Path, *words: str) -> str:
    """Return what git prints.

    Raises:
        HarrError: it ends with an error or takes more than two seconds.
    """
    env = {**os.environ, "LC_ALL": "C"}  # its words are compared
    try:
        done = subprocess.run(["git", *words], cwd=root, env=env, capture_output=True, text=True, check=True, timeout=2)
    except subprocess.CalledProcessError as error:
        raise HarrError(error.stderr.strip().splitlines()[0]) from None
    except subprocess.TimeoutExpired:
        raise HarrError("did not answer within two seconds") from None
    return done.stdout
