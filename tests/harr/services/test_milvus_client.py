"""The connection to Milvus Lite, as a folder or a server, survives a build that is silent for long."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("milvus_lite")

import grpc
from milvus_lite.index.faiss_hnsw import FaissHnswIndex
from pymilvus import DataType
from pymilvus.client import grpc_handler
from servers import milvus_lite

from harr.params.index import IndexParams
from harr.services.milvus_client import connect

SILENCE_SECONDS = 7
"""Length of the build; at a tenth of its intervals pymilvus was disconnected after 4.5 seconds."""


@pytest.fixture(params=["folder", "server"])
def params(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexParams]:
    """Milvus Lite within the process, and its server (`milvus-lite server`) at an address."""
    if request.param == "folder":
        yield IndexParams()
        return
    with milvus_lite(tmp_path / "served") as address:
        yield IndexParams(uri=address)


@pytest.mark.services  # seven seconds of silence
def test_a_long_build_in_milvus_lite_is_asked_for_once(
    params: IndexParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[Any] = []
    real_channel, real_build = grpc.insecure_channel, FaissHnswIndex.build.__func__

    def hasty_channel(target: str, options: list[tuple[str, Any]]) -> grpc.Channel:
        asked = {**dict(options), "grpc.http2.max_pings_without_data": 0}
        asked["grpc.keepalive_time_ms"] //= 10
        return real_channel(target, options=list(asked.items()))

    def slow_build(cls: type[FaissHnswIndex], *values: Any) -> FaissHnswIndex:
        builds.append(values)
        time.sleep(SILENCE_SECONDS)
        return real_build(cls, *values)

    monkeypatch.setattr(grpc_handler.grpc, "insecure_channel", hasty_channel)
    monkeypatch.setattr(FaissHnswIndex, "build", classmethod(slow_build))
    connection = connect(params, params.uri or str(tmp_path / "milvus.db"))
    try:
        schema = connection.create_schema(auto_id=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
        connection.create_collection("walks", schema=schema)
        connection.insert("walks", [{"key": key, "vector": [1.0, float(key)]} for key in range(10)])
        connection.flush("walks")
        indexes = connection.prepare_index_params()
        indexes.add_index("vector", metric_type="IP", index_type="HNSW", params={"params": {"M": 4}})
        connection.create_index("walks", indexes, timeout=600)
    finally:
        connection.close()
    assert len(builds) == 1
