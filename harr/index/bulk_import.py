"""Passages to a Milvus server in Parquet files that it reads itself: several times as fast as sending rows.

The server imports a file as whole segments. It must see the files: in the bucket of its storage
(``s3://bucket/folder``), or, where its storage is a local folder, under the same path as we do.
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
from harr.index.collection import Slice
from harr.index.full_text import english_stems
from harr.io.files import read_state, write_json
from harr.io.progress import stoppable
from harr.params.index import IndexParams
from harr.services.milvus_client import Connection
from harr.types import Passage

FILE_BYTES = 1 << 28
"""Number of bytes of vectors in a file: large enough for a segment, small enough for the server's memory."""
JOBS = 4
"""Number of imports that are under way at a time."""
POLL_SECONDS = 1.0
ASK_SECONDS = 60.0
STALLED_SECONDS = 1800.0
MAX_TEXT_BYTES = 65_535
Start = Callable[[str], int]
"""A function that has the server import the file it knows by this name and returns the number of the job."""
State = Callable[[int], tuple[str, str]]
"""A function that returns the state of a job: Completed, Failed or another word; and the reason."""


def import_jobs(client: Connection, name: str) -> tuple[Start, State]:
    """Return how to start an import, and to ask after it. MilvusClient has no method for it, its connection has."""
    connection = client.client._get_connection()

    def state(job: int) -> tuple[str, str]:
        found = client.wait(lambda: connection.get_bulk_insert_state(job, timeout=ASK_SECONDS))
        return found.state_name, found.failed_reason

    return lambda file: connection.do_bulk_insert(name, "", [file], timeout=ASK_SECONDS), state


def import_passages(
    passages: Passages,
    vectors: Vectors,
    part: Slice,
    params: IndexParams,
    progress: Path,
    start_job: Start,
    state: State,
    on_rows: Callable[[int], object],
) -> None:
    """Write a part to ``params.bulk`` file by file, and have each imported; a file is removed when it is.

    ``progress`` (a json file) says what is under way: after a kill the last jobs are waited for, and it goes on. It is
    taken away where a job failed, since such a job stays failed: the next call begins anew.

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
        files, folder = FileSystem.from_uri(params.bulk)
        files.create_dir(folder, recursive=True)
        for first in stoppable(range(began["rows"], len(part.rows), size)):
            _settle(jobs, JOBS - 1, state, files, progress)
            chunk = np.arange(first, min(first + size, len(part.rows)))
            name = f"{folder}/{vectors.identity}-{first:012d}.parquet"
            with files.open_output_stream(name) as sink:
                write_parquet(passages, vectors, part, chunk, params, sink)
            # The server knows what is in its bucket by the name within.
            jobs[name] = start_job(name.partition("/")[2] if params.bulk.startswith("s3:") else name)
            write_json(progress, {"rows": first + len(chunk), "jobs": jobs})
            on_rows(len(chunk))
        _settle(jobs, 0, state, files, progress)
    except ServiceUnavailable:
        raise
    except (OSError, ValueError) as error:
        raise ParamsError(f"index.bulk: {params.bulk} cannot be written ({one_line(error)}); correct it") from None


def _settle(jobs: dict[str, int], at_most: int, state: State, files: FileSystem, progress: Path) -> None:
    """Wait until no more than ``at_most`` jobs are left."""
    since = time.monotonic()
    while len(jobs) > at_most:
        done = [name for name, job in jobs.items() if _is_done(name, job, state, progress)]
        for name in done:
            with contextlib.suppress(FileNotFoundError):  # a call that was killed had removed it
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
    texts = [name for name, wanted in (("id", params.alias), ("text", params.full_text)) if wanted]
    schema = pa.schema([*fields, *(pa.field(name, pa.string(), nullable=False) for name in texts)])
    with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as writer:
        for start in range(0, len(places), params.batch_size):
            chunk = places[start : start + params.batch_size]
            flat = pa.array(vectors.take(part.rows[chunk]).ravel())
            offsets = np.arange(0, vectors.width * (len(chunk) + 1), vectors.width, dtype=np.int32)
            columns = [pa.array(part.keys[chunk]), pa.ListArray.from_arrays(pa.array(offsets), flat)]
            told = [texts_of(passage, params) for passage in passages.take(part.rows[chunk].tolist())] if texts else []
            columns += [pa.array([one[name] for one in told]) for name in texts]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def texts_of(passage: Passage, params: IndexParams) -> dict[str, str]:
    """Return the fields of a passage that are texts: its id where applications search by an alias, and what BM25 reads.

    >>> texts_of(Passage("a", "Rain."), IndexParams())
    {'text': 'Rain.'}
    """
    told = {"id": passage.id} if params.alias else {}
    return told | ({"text": searched_text(passage.content, params.stemmer)} if params.full_text else {})


def searched_text(content: str, stemmer: str = "") -> str:
    """Return as much of a passage, or of its stems, as a Milvus field of text holds."""
    content = english_stems(content) if stemmer else content
    return content.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def _is_done(name: str, job: int, state: State, progress: Path) -> bool:
    word, reason = state(job)
    if word.startswith("Failed"):
        progress.unlink(missing_ok=True)
        raise ServiceUnavailable(
            f"Milvus did not import {name} ({reason or word}); index.bulk must be a place that the server reads: "
            "the bucket of its storage, or the same local folder"
        )
    return word == "Completed"
