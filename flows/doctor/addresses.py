"""Checks of servers: each is asked once, with two seconds to answer."""

import contextlib
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from flows.doctor.finding import Finding, fail, ok, warn
from harr.errors import ServiceUnavailable, bare, one_line

SECONDS = 2.0


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


def check_prefect(environment: Mapping[str, str]) -> list[Finding]:
    """Look whether the configured Prefect server answers."""
    url = environment.get("PREFECT_API_URL", "").rstrip("/")
    if not url:
        return [ok("Prefect", "no server is configured, and none is needed: `harr up` starts one for schedules")]
    try:
        ask(f"{url}/health")
    except ServiceUnavailable as error:
        fix = "prefect server start, or unset PREFECT_API_URL"
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
    """Look whether a server answers and, where it has a ``model``, takes the key and has it.

    One without is a source of passages: it is seen whether it answers at all, since to ask it would be a search.
    """
    where = bare(address)
    try:
        answer = ask(f"{address.rstrip('/')}/models", key=environment.get(variable, "")) if model else ask(address)
    except ServiceUnavailable as error:
        fix = f"start it (docs/serving.md), or correct {section}.base_url"
        return [fail(section, f"no server answers at {where} ({error})", fix)]
    if not model:
        return [ok(section, f"answers at {where}")]
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
