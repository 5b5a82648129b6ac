"""Milvus, a server or a Milvus Lite folder: connect, wait while a server is away, report errors in one line."""

import functools
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException
from tqdm import tqdm

from harr.errors import DamagedFile, ParamsError, ServiceUnavailable, bare
from harr.io.extras import optional
from harr.io.retry import retry
from harr.params.index import IndexParams
from harr.services.failures import FIRST_SECONDS, connection_remedy

REBUILD = "dvc repro -f -s index"
CONNECT_SECONDS = 120.0
"""Seconds to wait for a server that listens, or may; if the connection is refused, ``FIRST_SECONDS``."""
WAIT_SECONDS = 600.0
"""Seconds to wait for a server that went away."""
SETTLING_SECONDS = 120.0
"""Seconds after its return in which a server may still lack some of its parts and refuse calls."""
LONGEST_PAUSE = 5.0
FAILURES = (MilvusException, grpc.RpcError)
REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""gRPC errors that waiting does not fix; all others it may."""
RESTARTING = {2, 101, 103, 106, 201, 202, 400, 401, 503, 901, 902}
"""Milvus's codes for a missing server, replica or channel, and for a collection that is not loaded."""
NEEDS_LOADED = ("search", "query")
SILENT = {"grpc.keepalive_time_ms": 2**31 - 1}
"""gRPC options that disable keepalive pings. pymilvus pings a silent server every ten seconds; after some minutes of
silence, as while a graph is built, gRPC's server in Milvus Lite treats that as an attack and hangs up
("too_many_pings"). pymilvus then requests the index again, gets through when the build has ended, and fails with
"index already exists"."""
LOOPBACK = {**SILENT, "grpc.enable_http_proxy": 0}
"""gRPC options for Milvus Lite, whose server is in this process: http_proxy is not meant for it."""
LINKS = "harr-index-"
"""Prefix of temporary folders with links to an index."""
LITE = "milvus_lite"
"""Prefix of Milvus Lite's version, also as a server (`milvus-lite server`)."""
FULL_TEXT_FROM = (2, 5)


class Connection:
    """A ``MilvusClient`` whose calls survive a server that stops, hangs or restarts.

    A failed call is repeated, after growing pauses, until it is answered or ``patience`` has passed since the
    first failure; two lines on stderr say that it waits, and how long it did. A repeated ``insert`` becomes an
    ``upsert``, since the first may have arrived. Calls to a Milvus Lite folder are not repeated.
    """

    def __init__(self, client: MilvusClient, where: str, opened: str = "") -> None:
        """Take a client, the address or folder for messages, and the opened folder if it differs."""
        self.client, self.where = client, bare(where)
        self.patience = WAIT_SECONDS
        """Seconds that a call waits for a server that went away."""
        self._away = -SETTLING_SECONDS
        """When the server was last away."""
        self._close = weakref.finalize(self, _close, client, opened or self.where)
        """Runs at exit at the latest: a client that outlives gRPC ends in a traceback."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._call, name)

    def _call(self, name: str, *values: Any, **named: Any) -> Any:
        method = getattr(self.client, name)
        if is_folder(self.where):
            return method(*values, **named)

        def again() -> Any:
            if name in NEEDS_LOADED:  # a restarted server may have released the collection
                self.client.load_collection(values[0], timeout=LONGEST_PAUSE)
            return (self.client.upsert if name == "insert" else method)(*values, **named)

        return self.wait(lambda: method(*values, **named), again)

    def wait(self, call: Callable[[], Any], again: Callable[[], Any] | None = None) -> Any:
        """Return what ``call`` returns or, if the server was away, what ``again`` (default: ``call``) returns later.

        Raises:
            ServiceUnavailable: the server did not come back.
            MilvusException: it is available and refuses.
        """
        try:
            return call()
        except FAILURES as error:
            if not _is_away(error) and time.monotonic() - self._away > SETTLING_SECONDS:
                raise
            failure = reason(error)
        began = time.monotonic()
        _say(f"Milvus at {self.where} does not answer ({failure}); waiting, at most {self.patience:.0f} s")
        try:  # a starting server raises all kinds of errors
            result = retry(again or call, self.patience, _is_failure, longest=LONGEST_PAUSE)
        except FAILURES as error:
            raise ServiceUnavailable(
                f"Milvus at {self.where} did not answer for {self.patience:.0f} s ({reason(error)}); "
                "start it and run the same command again"
            ) from None
        self._away = time.monotonic()
        _say(f"Milvus at {self.where} answers again, after {time.monotonic() - began:.0f} s")
        return result

    def close(self) -> None:
        """Disconnect and release Milvus Lite's lock."""
        self._close()


def _close(client: MilvusClient, opened: str) -> None:
    client.close()
    if is_folder(opened):
        from milvus_lite import server_manager_instance

        # Closing the client leaves the embedded server running, and its lock in place.
        server_manager_instance.release_server(opened)
        _remove_links(opened)


def connect(params: IndexParams, where: str, *, reads: bool = False) -> Connection:
    """Connect to the server ``params.uri``, retrying until the deadline, or open the Milvus Lite folder ``where``.

    Milvus Lite locks and tidies the folder it opens, but DVC may have built a published one of links to read-only
    files that other projects share. With ``reads``, it opens a private folder of links to the files, for any number
    of readers.

    Raises:
        ServiceUnavailable: no answer within CONNECT_SECONDS, refused token, or the folder is open elsewhere.
        DamagedFile: the folder cannot be read.
    """
    # pymilvus also logs a traceback for every error it raises.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    if params.uri:
        return Connection(_connect_server(params), where)
    opened = os.path.join(tempfile.mkdtemp(prefix=LINKS), "milvus.db") if reads else where
    try:
        if reads:
            _link_files(where, opened)
        return Connection(_connect_lite(where, opened), where, opened)
    except BaseException:
        _remove_links(opened)
        raise


def _link_files(where: str, opened: str) -> None:
    """Make the folder ``opened`` of the subfolders of ``where`` and links to its files, without the lock."""
    shutil.copytree(
        where,
        opened,
        ignore=shutil.ignore_patterns("LOCK"),
        copy_function=lambda source, target: os.symlink(os.path.realpath(source), target),
    )


def _remove_links(opened: str) -> None:
    folder = os.path.dirname(opened)
    if os.path.basename(folder).startswith(LINKS):
        shutil.rmtree(folder, ignore_errors=True)


def _connect_server(params: IndexParams) -> MilvusClient:
    where, token = bare(params.uri), os.environ.get(params.token_variable, "")
    began = time.monotonic()

    def limit(error: Exception) -> float:
        return FIRST_SECONDS if "Connection refused" in reason(error) else CONNECT_SECONDS

    def tell(error: Exception, number: int) -> None:
        if number == 1:
            _say(f"no Milvus at {where} yet ({reason(error)}); waiting, at most {limit(error):.0f} s")

    def again(error: Exception) -> bool:
        return _is_failure(error) and not _refuses(error) and time.monotonic() - began < limit(error)

    try:
        return retry(
            lambda: _open_server(params.uri, token),
            CONNECT_SECONDS,
            again,
            longest=LONGEST_PAUSE,
            tell=tell,
        )
    except FAILURES as error:
        waited = "" if _refuses(error) else f" within {time.monotonic() - began:.0f} s"
        setting = f"index.uri or the token in ${params.token_variable}"
        remedy = f"correct {setting}" if _refuses(error) else connection_remedy(reason(error), params.uri, setting)
        raise ServiceUnavailable(f"no Milvus at {where}{waited} ({reason(error)}); {remedy}") from None


def _open_server(uri: str, token: str) -> MilvusClient:
    """Return a client for a server, which it pings unless that is Milvus Lite's (``SILENT``)."""
    client = MilvusClient(uri, token=token, timeout=5, dedicated=True)
    if not str(client.get_server_version(timeout=5)).startswith(LITE):
        return client
    client.close()
    return MilvusClient(uri, token=token, timeout=5, dedicated=True, grpc_options=SILENT)


def _connect_lite(where: str, opened: str) -> MilvusClient:
    # Lite scores BM25 within each segment. These limits keep some 400,000 passages in one,
    # which makes scores exact. milvus_lite reads them on import.
    os.environ.setdefault("MILVUS_LITE_MEMTABLE_MEMORY_LIMIT_BYTES", str(1 << 30))
    os.environ.setdefault("MILVUS_LITE_WAL_SIZE_LIMIT_BYTES", str(1 << 31))
    lite, lite_errors = optional("milvus_lite.db", "lite"), optional("milvus_lite.exceptions", "lite")
    servers = optional("milvus_lite.server_manager", "lite")
    for noisy in ("milvus_lite", "grpc._server"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    try:
        # Closing a shared client would not close it.
        return MilvusClient(opened, dedicated=True, grpc_options=LOOPBACK)
    except MilvusException as error:
        failure = reason(error)
    # pymilvus hides the cause; opening the folder directly names it. A server that did start has the lock.
    servers.server_manager_instance.release_server(opened)
    try:
        lite.MilvusLite(opened).close()
    except lite_errors.DataDirLockedError:
        failure = "another process has it open; wait for that process or stop it, or set index.uri to a Milvus server"
        raise ServiceUnavailable(f"{where} is locked: {failure}") from None
    except PermissionError:  # its message names the file
        raise
    except Exception as error:
        raise DamagedFile(f"{where} cannot be opened ({reason(error)}); run `{REBUILD}`") from None
    raise ServiceUnavailable(f"{where} can be opened, but Milvus Lite does not answer in this process ({failure})")


def check_full_text(connection: Connection) -> None:
    """Refuse a server older than Milvus 2.5, which has no BM25.

    Raises:
        ParamsError: it is older.
    """
    version = str(connection.get_server_version())
    numbers = re.match(r"v?(\d+)\.(\d+)", version)  # Milvus Lite's version has a name before its numbers
    if numbers and tuple(map(int, numbers.groups())) < FULL_TEXT_FROM:
        raise ParamsError(
            f"index.full_text: true needs BM25, but the server at {connection.where} is Milvus {version}, "
            "and 2.5 is the first that has it; set index.full_text: false, or index.uri to a newer server"
        )


@contextmanager
def explain_errors(where: str) -> Iterator[None]:
    """Turn pymilvus's errors into harr's, in one line."""
    try:
        yield
    except FAILURES as error:
        if is_folder(where):
            raise DamagedFile(f"{where} failed ({reason(error)}); `{REBUILD}` makes it again") from None
        raise ServiceUnavailable(f"Milvus at {bare(where)}: {reason(error)}") from None


def is_folder(where: str) -> bool:
    """Return whether this is a Milvus Lite folder, not a server's address.

    >>> is_folder("data/index/milvus.db"), is_folder("http://127.0.0.1:19530")
    (True, False)
    """
    return where.endswith(".db")


def reason(error: Exception) -> str:
    """Return the message of a Milvus or gRPC error, in one short line without a password."""
    cause = _cause(error)
    message = cause.details() if isinstance(cause, grpc.RpcError) else getattr(error, "message", error)
    words = bare(str(message)).rpartition("Failed to connect to remote host: ")[2].split()
    if "stack trace:" in str(message):  # a starting server puts code locations before the cause
        words = [word for word in words if "/" not in word and word != "trace:" and word != "stack"]
    return " ".join(words)[:300]


def _is_failure(error: Exception) -> bool:
    """Return whether an error comes from Milvus or gRPC."""
    return isinstance(error, FAILURES)


def _is_away(error: Exception) -> bool:
    """Return whether the server is away and may answer later."""
    if isinstance(error, grpc.RpcError):
        return error.code() not in REFUSALS
    code = getattr(error, "code", None)  # pymilvus passes on gRPC's code or Milvus's number
    return code in RESTARTING or bool(getattr(error, "retriable", False)) or code == grpc.StatusCode.UNAVAILABLE


def _cause(error: Exception) -> BaseException | None:
    """Return the gRPC error behind one of pymilvus, which reports all connection failures alike."""
    return error if isinstance(error, grpc.RpcError) else error.__cause__


def _refuses(error: Exception) -> bool:
    """Return whether a server is available but refuses, for instance the token."""
    cause = _cause(error)
    return isinstance(cause, grpc.RpcError) and cause.code() in REFUSALS


def _say(line: str) -> None:
    tqdm.write(line, file=sys.stderr)
