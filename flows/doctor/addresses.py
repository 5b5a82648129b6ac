"""Checks of servers: each is asked once, with two seconds to answer."""

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import DamagedFile, ServiceUnavailable, bare, one_line
from harr.io.files import read_state
from harr.params import Params

SECONDS = 2.0
PREFECT_STATE = ".harr/prefect.json"


def ask(url: str, *, key: str = "") -> httpx.Response:
    """Send one GET request; a name and password in the address are sent too, and a redirect is not followed.

    Raises:
        ServiceUnavailable: why no answer came.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.get(url, headers=headers, timeout=SECONDS, follow_redirects=False)
    except httpx.RemoteProtocolError:
        raise ServiceUnavailable("what is there speaks no HTTP, or its address is wrong") from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise ServiceUnavailable(one_line(error)) from None
    if answer.is_redirect:
        raise ServiceUnavailable(f"HTTP {answer.status_code}, a redirect, which is not followed; name its end")
    return answer


def check_prefect(root: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Look whether the configured Prefect server answers, or the one that the state file of a run names."""
    configured = environment.get("PREFECT_API_URL", "").rstrip("/")
    url = configured
    if not url:
        if not (root / PREFECT_STATE).exists():
            return [ok("Prefect", "no server is configured: every run starts its own")]
        try:
            url = read_state(root / PREFECT_STATE, "", url=str)["url"]
        except DamagedFile:
            return [warn("Prefect", f"{PREFECT_STATE} is damaged", f"rm -r {PREFECT_STATE}")]
    try:
        ask(f"{url}/health")
    except ServiceUnavailable as error:
        if not configured:
            return [warn("Prefect", f"{PREFECT_STATE} names {bare(url)}, where nobody answers", f"rm {PREFECT_STATE}")]
        fix = "prefect server start, or unset PREFECT_API_URL (then every run starts its own)"
        return [fail("Prefect", f"PREFECT_API_URL {bare(url)} does not answer ({error})", fix)]
    return _check_ui(url) or [ok("Prefect", f"answers at {bare(url)}")]


def _check_ui(url: str) -> list[Finding]:
    """Compare the address that a server's pages ask with the server's own: at another port it must be set."""
    here, settings = urlsplit(url), None
    with contextlib.suppress(ServiceUnavailable):
        settings = _json(ask(f"{here.scheme}://{here.netloc}/ui-settings"))
    asked = _port(str(settings.get("api_url") or "")) if isinstance(settings, dict) else None
    if asked in (None, here.port):
        return []
    fix = f"start the server with PREFECT_SERVER_UI_API_URL={bare(url)}"
    return [warn("Prefect", f"answers at {bare(url)}, but its pages ask port {asked} and stay empty", fix)]


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _port(address: str) -> int | None:
    """Return the port that an address names, if it is one."""
    try:
        return urlsplit(address).port
    except ValueError:
        return None


def check_model_server(
    section: str, address: str, model: str, variable: str, environment: Mapping[str, str]
) -> list[Finding]:
    """Look whether an OpenAI-compatible server answers, takes the key, and has the model."""
    where = bare(address)
    try:
        answer = ask(f"{address.rstrip('/')}/models", key=environment.get(variable, ""))
    except ServiceUnavailable as error:
        fix = f"start it (docs/serving.md), or correct {section}.base_url"
        return [fail(section, f"no server answers at {where} ({error})", fix)]
    if answer.status_code in (401, 403):
        state = "the key was refused" if environment.get(variable) else f"${variable} is unset"
        return [fail(section, f"{where} answers {answer.status_code}: {state}", f"export {variable}=<its key>")]
    value = _json(answer)
    listed = value.get("data") if isinstance(value, dict) else None
    names = [one.get("id") for one in listed or () if isinstance(one, dict)]
    if names and model not in names:
        fix = f"set {section}.model to one of these, or serve {model}"
        return [fail(section, f"{where} serves {', '.join(map(str, names[:3]))}, not {model}", fix)]
    if answer.is_error:
        said = f"{where} answers {answer.status_code} ({answer.reason_phrase})"
        return [warn(section, said, f"is {section}.base_url complete, with /v1?")]
    return [ok(section, f"answers at {where}")]


def check_milvus(address: str) -> list[Finding]:
    """Look whether somebody listens at a Milvus server's port; whether it holds the collection is seen on opening."""
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 19530)
        socket.create_connection((parts.hostname or "", port), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        fix = 'start it, or index.uri: "" for Milvus Lite, then `dvc repro index`'
        return [fail("Milvus", f"nobody listens at {bare(address)} ({error})", fix)]
    return [ok("Milvus", f"listens at {bare(address)}")]


def known_ports(root: Path, params: Params, environment: Mapping[str, str], store: str) -> dict[int, str]:
    """Return the ports on this machine that params.yaml, the environment or a run's state file name."""
    writers = (params.generator, params.reward.judge, params.evaluate.reader)
    named = [getattr(writer, "base_url", "") for writer in writers]
    named += [params.encoder.base_url, params.index.uri, store, environment.get("PREFECT_API_URL", "")]
    with contextlib.suppress(DamagedFile):
        named.append(read_state(root / PREFECT_STATE, "", url=str)["url"])
    parts = [urlsplit(bare(address)) for address in named if address.startswith("http") and _port(address)]
    return {one.port: one.netloc for one in parts if one.port and one.hostname in ("localhost", "127.0.0.1", "::1")}
