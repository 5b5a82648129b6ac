"""The Prefect server may go away while a flow runs: its clients ask again until it answers, and a line says so.

PREFECT_CLIENT_MAX_RETRIES is not enough: a new client gives up at its first refused connection, such as the one that
gives a place under a limit back when a stage is done, and the stage would fail whatever its work has come to.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker

from harr.errors import ServiceUnavailable, bare
from harr.io import progress

WAIT_SECONDS = 600.0
"""Time for which the server is waited for, in all."""
PAUSE_SECONDS = 1.0
NOTICE_SECONDS = 3.0
"""Time for which nothing is said: a local server on a busy machine may be late by a second."""
BUSY = (408, 429, 502, 503)
"""Statuses with which a server, or a proxy before it, says: not now."""
EVENT_TRIES = 120
"""Number of seconds for which the states of tasks, which go another way, are kept for the server."""


class _Outage:
    """What all clients of this process know of the server: since when it is away, and whether a line said so."""

    lock = threading.Lock()
    since: float | None = None
    said = False


def outlast_the_server() -> None:
    """Have Prefect's clients in this process outlast a server that stops, hangs or restarts.

    Work goes on meanwhile; what waits is the report of it. After WAIT_SECONDS it is a ``ServiceUnavailable``.
    """
    send, send_async = PrefectHttpxSyncClient.send, PrefectHttpxAsyncClient.send
    if send.__module__ == __name__:
        return

    def ask(client: Any, *values: Any, **named: Any) -> Any:
        while True:
            with _attempt():
                return send(client, *values, **named)
            time.sleep(PAUSE_SECONDS)

    async def ask_async(client: Any, *values: Any, **named: Any) -> Any:
        while True:
            with _attempt():
                return await send_async(client, *values, **named)
            await asyncio.sleep(PAUSE_SECONDS)

    PrefectHttpxSyncClient.send = ask  # type: ignore[method-assign,assignment]
    PrefectHttpxAsyncClient.send = ask_async  # type: ignore[method-assign,assignment]
    EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=EVENT_TRIES)


@contextlib.contextmanager
def _attempt() -> Iterator[None]:
    """Suppress the error of a server that is away where it is worth to ask again; a line says so after NOTICE_SECONDS.

    Raises:
        ServiceUnavailable: it has been away for WAIT_SECONDS. A process that was asked to stop gets the error itself.
    """
    where = bare(os.environ.get("PREFECT_API_URL", ""))
    try:
        yield
    except (httpx.TransportError, httpx.HTTPStatusError) as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in BUSY:
            raise
        if progress.stop_asked():
            logging.raiseExceptions = False  # or Prefect's handler prints what it could not send
            raise
        with _Outage.lock:
            if _Outage.since is None:
                _Outage.since = time.monotonic()
            away = time.monotonic() - _Outage.since
            if away >= NOTICE_SECONDS and not _Outage.said:
                _Outage.said = True
                what = "does not answer; the work goes on and is reported when it is back"
                print(f"warning: the Prefect server at {where} {what}", file=sys.stderr, flush=True)
        if away > WAIT_SECONDS:
            raise ServiceUnavailable(
                f"the Prefect server at {where} did not answer for {WAIT_SECONDS:.0f} s; start it, or unset "
                "PREFECT_API_URL, and run the same command again: finished work is kept"
            ) from None
    else:
        with _Outage.lock:
            if _Outage.since is None:
                return
            away, said = time.monotonic() - _Outage.since, _Outage.said
            _Outage.since, _Outage.said = None, False
            if said:
                print(f"the Prefect server answers again, after {away:.0f} s", file=sys.stderr, flush=True)
