"""Checks of servers: each is asked once, with half a second to answer."""

import base64
import contextlib
import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import DamagedFile, bare
from harr.io.files import read_state
from harr.params import Params

SECONDS = 0.5


@dataclass(frozen=True)
class Answer:
    """What a server said: an HTTP status (0: none came) with its text and JSON, or why it did not."""

    status: int
    text: str = ""
    value: Any = None
    reason: str = ""


def ask(url: str, *, key: str = "", body: Any = None) -> Answer:
    """One HTTP request; JSON is decoded, anything else is left out. A name and password in the address are sent."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        person, _, _ = urlsplit(url).netloc.rpartition("@")
        if person:
            headers["Authorization"] = f"Basic {base64.b64encode(unquote(person).encode()).decode()}"
        request = urllib.request.Request(bare(url), data, headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            text = reply.read().decode(errors="replace")
            return Answer(reply.status, text, _decoded(text))
    except urllib.error.HTTPError as error:
        return Answer(error.code, reason=error.reason)
    except http.client.HTTPException as error:
        return Answer(0, reason=f"what is there speaks no HTTP, or its address is wrong: {type(error).__name__}")
    except (OSError, ValueError, OverflowError) as error:  # OverflowError: a port that cannot be
        return Answer(0, reason=str(getattr(error, "reason", error)))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def check_prefect(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """The configured Prefect server answers, and so does the one that the state file of a run names."""
    configured = environment.get("PREFECT_API_URL", "").rstrip("/")
    url, source = configured, "PREFECT_API_URL"
    if not url:
        source = ".harr/prefect.json"
        if not (root / source).exists():
            return [ok("Prefect", "no server is configured: every run starts its own")]
        try:
            url = read_state(root / source, "", url=str)["url"]
        except DamagedFile:
            return [warn("Prefect", f"{source} is damaged", f"rm -r {source}")]
    answer = ask(f"{url}/health")
    if answer.status == 0 and configured:
        fix = "prefect server start, or unset PREFECT_API_URL (then every run starts its own)"
        return [fail("Prefect", f"PREFECT_API_URL {bare(url)} does not answer ({answer.reason})", fix)]
    if answer.status == 0:
        return [warn("Prefect", f"{source} names {bare(url)}, where nobody answers", "rm .harr/prefect.json")]
    return _check_ui(url) or [ok("Prefect", f"answers at {bare(url)}")]


def _check_ui(url: str) -> list[Finding]:
    """The pages of a server ask the address that it was told; at another port that must be set."""
    here = urlsplit(url)
    told = ask(f"{here.scheme}://{here.netloc}/ui-settings").value
    asked = _port(str(told.get("api_url") or "")) if isinstance(told, dict) else None
    if asked in (None, here.port):
        return []
    fix = f"start the server with PREFECT_SERVER_UI_API_URL={bare(url)}"
    return [warn("Prefect", f"answers at {bare(url)}, but its pages ask port {asked} and stay empty", fix)]


def _port(address: str) -> int | None:
    """The port that an address names, if it is one."""
    try:
        return urlsplit(address).port
    except ValueError:
        return None


def check_mlflow(address: str) -> list[Finding]:
    """A tracking server answers; a database file needs none."""
    if urlsplit(address).scheme not in ("http", "https"):
        return []
    answer = ask(f"{address.rstrip('/')}/health")
    if answer.status == 0:
        fix = 'start it (`mlflow server --host 127.0.0.1`), or tracking.uri: "" to keep runs in mlflow.db'
        return [fail("MLflow", f"no server answers at {bare(address)} ({answer.reason})", fix)]
    return [_status("MLflow", bare(address), answer, "see its --allowed-hosts")]


def check_model_server(
    section: str, address: str, model: str, variable: str, environment: Mapping[str, str]
) -> list[Finding]:
    """An OpenAI-compatible server answers, takes the key, and has the model."""
    answer = ask(f"{address.rstrip('/')}/models", key=environment.get(variable, ""))
    if answer.status == 0:
        fix = f"start it (docs/serving.md), or correct {section}.base_url"
        return [fail(section, f"no server answers at {bare(address)} ({answer.reason})", fix)]
    if answer.status in (401, 403):
        state = "the key was refused" if environment.get(variable) else f"${variable} is unset"
        return [fail(section, f"{bare(address)} answers {answer.status}: {state}", f"export {variable}=<its key>")]
    listed = answer.value.get("data") if isinstance(answer.value, dict) else None
    names = [one.get("id") for one in listed or () if isinstance(one, dict)]
    if names and model not in names:
        fix = f"set {section}.model to one of these, or serve {model}"
        return [fail(section, f"{bare(address)} serves {', '.join(map(str, names[:3]))}, not {model}", fix)]
    return [_status(section, bare(address), answer, f"is {section}.base_url complete, with /v1?")]


def _status(subject: str, address: str, answer: Answer, fix: str) -> Finding:
    if answer.status < 400:
        return ok(subject, f"answers at {address}")
    return warn(subject, f"{address} answers {answer.status} ({answer.reason})", fix)


def check_milvus(address: str) -> list[Finding]:
    """Somebody listens at a Milvus server's port; whether it holds the collection is seen when it is opened."""
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 19530)
        socket.create_connection((parts.hostname or "", port), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        fix = 'start it, or index.uri: "" for Milvus Lite, then `dvc repro index`'
        return [fail("Milvus", f"nobody listens at {bare(address)} ({error})", fix)]
    return [ok("Milvus", f"listens at {bare(address)}")]


def known_ports(root: Path, params: Params, environment: Mapping[str, str], store: str) -> dict[int, str]:
    """Ports on this machine that params.yaml, the environment or a run's state file name."""
    writers = (params.generator, params.reward.judge, params.evaluate.reader)
    named = [getattr(writer, "base_url", "") for writer in writers]
    named += [params.encoder.base_url, params.index.uri, store, environment.get("PREFECT_API_URL", "")]
    with contextlib.suppress(DamagedFile):
        named.append(read_state(root / ".harr/prefect.json", "", url=str)["url"])
    parts = [urlsplit(bare(address)) for address in named if address.startswith("http") and _port(address)]
    return {one.port: one.netloc for one in parts if one.port and one.hostname in ("localhost", "127.0.0.1", "::1")}
