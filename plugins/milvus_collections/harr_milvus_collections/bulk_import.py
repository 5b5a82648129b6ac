"""Passages of a collection that harr builds reach the server as Parquet files, which it reads itself.

This is several times as fast as sending rows.

The server imports a file as whole segments. It must see the files: in the bucket of its storage
(``s3://bucket/folder``) or, if its storage is a local folder, under the same path as harr.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.fs import FileSystem

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import ParamsError, ServiceUnavailable, one_line
from harr.index.build import Builder, build_index
from harr.index.collection import Slice
from harr.index.corpus import OtherIndex
from harr.index.full_text import prepare_text
from harr.io.files import read_state, write_json
from harr.io.progress import stoppable
from harr.params.index import IndexParams
from harr.services.milvus_client import Connection
from harr_milvus_collections.params import read_bulk

FILE_BYTES = 1 << 28
"""Size of the vectors in a file, in bytes: large enough for a segment, small enough for the server's memory."""
JOBS = 4
"""Number of concurrent imports."""
POLL_SECONDS = 1.0
ASK_SECONDS = 60.0
STALLED_SECONDS = 1800.0
Start = Callable[[str], int]
"""A function that has the server import the file it knows by this name, and returns the job's number."""
State = Callable[[int], tuple[str, str]]
"""A function that returns the state of a job, Completed, Failed or another word, and the reason."""


def build_by_import(
    passages: Passages, vectors: Vectors, params: IndexParams, out: Path, work: Path
) -> dict[str, float]:
    """Build the index as harr does, except for how passages get into a new collection.

    Raises:
        ParamsError: ``index.settings`` names no place for the files. Also what ``build_index`` raises.
    """
    place = read_bulk(params).folder

    def fill(builder: Builder, part: Slice, first: int, progress: Path, on_rows: Callable[[int], object]) -> None:
        jobs = import_jobs(builder.client, part.collection)
        import_passages(passages, vectors, part, params, place, progress, *jobs, on_rows)

    return build_index(passages, vectors, params, out, work, fill)


INDEX = OtherIndex(build_by_import)
"""The index for ``index.function``."""


def import_jobs(client: Connection, name: str) -> tuple[Start, State]:
    """Return functions to start an import and to ask for its state, from the connection: MilvusClient has none."""
    connection = client.client._get_connection()

    def state(job: int) -> tuple[str, str]:
        answer = client.wait(lambda: connection.get_bulk_insert_state(job, timeout=ASK_SECONDS))
        return answer.state_name, answer.failed_reason

    return lambda file: connection.do_bulk_insert(name, "", [file], timeout=ASK_SECONDS), state


def import_passages(
    passages: Passages,
    vectors: Vectors,
    part: Slice,
    params: IndexParams,
    place: str,
    progress: Path,
    start_job: Start,
    state: State,
    on_rows: Callable[[int], object],
) -> None:
    """Write a part to ``place`` file by file, and have each imported; a file is then removed.

    ``progress`` (a json file) lists the jobs in progress: after a kill they are waited for, and the import continues.
    It is removed if a job failed, since such a job stays failed: the next call starts again.

    Raises:
        ParamsError: the folder or bucket cannot be written.
        ServiceUnavailable: the server could not import a file.
    """
    began: dict[str, Any] = (
        read_state(progress, "delete its folder and run the same command again", rows=int)
        if progress.exists()
        else {"rows": 0}
    )
    jobs: dict[str, int] = began.get("jobs", {})
    size = max(params.batch_size, FILE_BYTES // (4 * vectors.width))
    try:
        files, folder = FileSystem.from_uri(place)
        files.create_dir(folder, recursive=True)
        for first in stoppable(range(began["rows"], len(part.rows), size)):
            _settle(jobs, JOBS - 1, state, files, progress)
            chunk = np.arange(first, min(first + size, len(part.rows)))
            name = f"{folder}/{vectors.identity}-{first:012d}.parquet"
            with files.open_output_stream(name) as sink:
                write_parquet(passages, vectors, part, chunk, params, sink)
            # The server knows files in its bucket by their name within it.
            jobs[name] = start_job(name.partition("/")[2] if place.startswith("s3:") else name)
            write_json(progress, {"rows": first + len(chunk), "jobs": jobs})
            on_rows(len(chunk))
        _settle(jobs, 0, state, files, progress)
    except ServiceUnavailable:
        raise
    except (OSError, ValueError) as error:
        raise ParamsError(f"index.settings.folder: {place} cannot be written ({one_line(error)}); correct it") from None


def _settle(jobs: dict[str, int], at_most: int, state: State, files: FileSystem, progress: Path) -> None:
    """Wait until no more than ``at_most`` jobs are left."""
    since = time.monotonic()
    while len(jobs) > at_most:
        done = [name for name, job in jobs.items() if _is_done(name, job, state, progress)]
        for name in done:
            with contextlib.suppress(FileNotFoundError):  # removed by a killed call
                files.delete_file(name)
            del jobs[name]
            since = time.monotonic()
        if time.monotonic() - since > STALLED_SECONDS:
            raise ServiceUnavailable(f"Milvus finished no import within {STALLED_SECONDS:.0f} s; look at its log")
        if not done:
            time.sleep(POLL_SECONDS)


def write_parquet(
    passages: Passages, vectors: Vectors, part: Slice, places: NDArray[np.int64], params: IndexParams, sink: Any
) -> None:
    """Write keys, vectors and texts of these places of a part; ``params.batch_size`` are in memory at once."""
    fields = [pa.field("key", pa.int64(), nullable=False), pa.field("vector", pa.list_(pa.float32()), nullable=False)]
    if params.full_text:
        fields.append(pa.field("text", pa.string(), nullable=False))
    schema = pa.schema(fields)
    with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as writer:
        for start in range(0, len(places), params.batch_size):
            chunk = places[start : start + params.batch_size]
            flat = pa.array(vectors.take(part.rows[chunk]).ravel())
            offsets = np.arange(0, vectors.width * (len(chunk) + 1), vectors.width, dtype=np.int32)
            columns = [pa.array(part.rows[chunk]), pa.ListArray.from_arrays(pa.array(offsets), flat)]
            if params.full_text:
                chosen = passages.take(part.rows[chunk].tolist())
                columns.append(pa.array([prepare_text(passage.content, params.stemmer) for passage in chosen]))
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _is_done(name: str, job: int, state: State, progress: Path) -> bool:
    word, reason = state(job)
    if word.startswith("Failed"):
        progress.unlink(missing_ok=True)
        raise ServiceUnavailable(
            f"Milvus did not import {name} ({reason or word}); index.settings.folder must be a place that the server reads: "
            "the bucket of its storage, or the same local folder"
        )
    return word == "Completed"
