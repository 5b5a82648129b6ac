"""Real servers for an index: Milvus 2.3.5, one per session, with its own token; and Milvus Lite's, in a thread."""

import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException
from servers import Server, milvus, milvus_lite


@pytest.fixture(scope="session")
def milvus_server() -> Iterator[tuple[Server, str]]:
    """The server and the token that it asks for; tests that share it form the group ``milvus``."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # Milvus unpacks half a gigabyte
        made = milvus(Path(name), lite=False)
        try:
            made.start()
            yield made, f"root:{password_of(f'http://127.0.0.1:{made.port}')}"
        finally:
            made.stop()


def password_of(uri: str) -> str:
    """Wait until Milvus works, replace its default password, and return the new one."""
    password, deadline = secrets.token_hex(16), time.monotonic() + 120
    while True:
        try:
            server = MilvusClient(uri, token="root:Milvus", dedicated=True)
            server.update_password("root", "Milvus", password)
            server.close()
            return password
        except MilvusException:
            assert time.monotonic() < deadline
            time.sleep(0.5)


@pytest.fixture
def milvus_uri(milvus_server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> str:
    server, token = milvus_server
    monkeypatch.setenv("MILVUS_TOKEN", token)
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def lite_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with milvus_lite(tmp_path_factory.mktemp("lite") / "data") as address:
        yield address


@pytest.fixture(
    params=["lite_uri", pytest.param("milvus_uri", marks=[pytest.mark.services, pytest.mark.xdist_group("milvus")])]
)
def uri(request: pytest.FixtureRequest) -> str:
    """The address of either server."""
    address: str = request.getfixturevalue(request.param)
    return address
