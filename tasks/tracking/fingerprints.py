"""Fingerprints: which code, data and environment a run or a model version was made with."""

import getpass
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from harr.io.files import sha256

CODE = (":/", ":(exclude)metrics", ":(exclude)plots", ":(exclude)dvc.lock")
"""Paths that git compares to tell whether the code was edited: the whole repository, but not what a run writes here."""


def revisions() -> dict[str, str]:
    """Return the state of code and data: git commit, whether it was edited, and the hash of dvc.lock."""
    commit = _git("rev-parse", "HEAD")
    edited = str(bool(_git("status", "--porcelain", "--untracked-files=no", "--", *CODE))).lower()
    lock = Path("dvc.lock")
    return {
        "mlflow.source.git.commit": commit or "none",
        "harr.edited": edited if commit else "unknown: no git repository",
        "harr.dvc_lock": sha256(lock) if lock.exists() else "none",
    }


def user() -> str:
    """Return the user: name and mail of git's configuration, or else the account."""
    name, mail = _git("config", "user.name"), _git("config", "user.email")
    return " ".join(filter(None, (name, f"<{mail}>" if mail else ""))) or getpass.getuser()


def requirements() -> str:
    """Return every installed distribution as ``name==version``, a line each, after a comment with Python's version.

    >>> lines = requirements().splitlines()
    >>> lines[0].startswith("# Python 3."), any(line.startswith("mlflow==") for line in lines)
    (True, True)
    """
    packages = {f"{package.name.lower().replace('_', '-')}=={package.version}" for package in metadata.distributions()}
    return "\n".join([f"# Python {platform.python_version()}", *sorted(packages)]) + "\n"


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # without git, runs are not tied to a commit, as `harr doctor` says
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
