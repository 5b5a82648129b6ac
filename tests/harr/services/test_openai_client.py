"""An address that does not answer is told once, while it is still asked."""

import pytest

from harr.errors import ServiceUnavailable
from harr.services.openai_client import Service


def test_waiting_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service(
        "writer",
        base_url="http://127.0.0.1:9/v1",
        model="m",
        key_variable="NO_KEY",
        timeout_seconds=1,
        deadline_seconds=2,
        unreachable="writer.base_url",
        overloaded="writer.concurrency",
    )
    with pytest.raises(
        ServiceUnavailable, match=r"writer at http://127\.0\.0\.1:9/v1: connection failed, tried for 2 s"
    ):
        service.ask(lambda client: client.models.list())
    line = "writer at http://127.0.0.1:9/v1 does not answer yet; it is asked again, for 2 s at most\n"
    assert capsys.readouterr().err == line and service.retries > 1
