"""The Prefect server may go away while a flow runs: its clients ask again until it answers, and a line says so.

Prefect's own clients try five times, and a new one only once; then the flow fails, whatever its work has come to.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from typing import Any

import httpx
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.events.clients import RETRYABLE_EXCEPTIONS, PrefectEventsClient
from prefect.events.worker import EventsWorker

from harr.errors import ServiceUnavailable, bare
from harr.io import progress

WAIT_SECONDS = 600.0
"""So long the server is waited for, in all."""
PAUSE_SECONDS = 1.0
EVENT_TRIES = 120
"""So many seconds the states of tasks, which go another way, are kept for the server."""
STOP_SECONDS = 2.0
"""So long a process that was asked to stop waits for one answer."""


class _Outage:
    """What all clients of this process know of the server: since when it is away (None: it is not)."""

    lock = threading.Lock()
    since: float | None = None


def be_patient() -> None:
    """Have Prefect's clients in this process outlast a server that stops, hangs or restarts.

    Work goes on meanwhile; what waits is the report of it. After WAIT_SECONDS it is a ``ServiceUnavailable``.
    """
    ask, ask_async = PrefectHttpxSyncClient._send_with_retry, PrefectHttpxAsyncClient._send_with_retry
    if ask.__module__ == __name__:
        return

    def send(client: Any, **request: Any) -> Any:
        while True:
            try:
                return _answered(ask(client, **{**request, "retry_exceptions": ()}))
            except httpx.TransportError as error:
                _missed(error)
            time.sleep(PAUSE_SECONDS)

    async def send_async(client: Any, **request: Any) -> Any:
        while True:
            try:
                return _answered(await ask_async(client, **{**request, "retry_exceptions": ()}))
            except httpx.TransportError as error:
                _missed(error)
            await asyncio.sleep(PAUSE_SECONDS)

    reconnect_plainly = PrefectEventsClient._reconnect

    async def reconnect(client: PrefectEventsClient) -> None:
        """The states of tasks are kept for a server that is away; not in a process that was asked to stop."""
        try:
            async with asyncio.timeout(STOP_SECONDS if progress.stop_asked() else None):
                await reconnect_plainly(client)
        except RETRYABLE_EXCEPTIONS as error:
            if progress.stop_asked():  # any error but these ends the client's own tries
                raise ServiceUnavailable(f"the Prefect server is gone ({error})") from None
            raise

    # A client of our own class would be left out: Prefect sends events through those that it knows.
    PrefectEventsClient._reconnect = reconnect  # type: ignore[assignment,method-assign]
    EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=EVENT_TRIES)
    PrefectHttpxSyncClient._send_with_retry = send  # type: ignore[assignment,method-assign]
    PrefectHttpxAsyncClient._send_with_retry = send_async  # type: ignore[assignment,method-assign]


def _missed(error: httpx.TransportError) -> None:
    """Return where it is worth to ask again; the first to miss the server says so."""
    if progress.stop_asked():
        logging.raiseExceptions = False  # or Prefect's handler prints what it could not send
        raise error
    where = bare(os.environ.get("PREFECT_API_URL", ""))
    with _Outage.lock:
        if _Outage.since is None:
            _Outage.since = time.monotonic()
            _say(f"the Prefect server at {where} does not answer; the work goes on and is reported when it is back")
        away = time.monotonic() - _Outage.since
    if away > WAIT_SECONDS:
        raise ServiceUnavailable(
            f"the Prefect server at {where} did not answer for {WAIT_SECONDS:.0f} s; start it, or unset "
            "PREFECT_API_URL, and run the same command again: finished work is kept"
        ) from None


def _answered(answer: Any) -> Any:
    with _Outage.lock:
        if _Outage.since is not None:
            _say(f"the Prefect server answers again, after {time.monotonic() - _Outage.since:.0f} s")
            _Outage.since = None
    return answer


def _say(line: str) -> None:
    print(f"warning: {line}" if "not answer" in line else line, file=sys.stderr, flush=True)
