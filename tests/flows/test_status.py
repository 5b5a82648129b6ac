"""What `harr status` says of unfinished work."""

from pathlib import Path

import pytest

from flows.status import list_unfinished
from harr.io.files import write_json


@pytest.mark.fault(2)
def test_unfinished_work_is_named(tmp_path: Path) -> None:
    assert list_unfinished(tmp_path) == []
    (tmp_path / "work/train/abc").mkdir(parents=True)
    write_json(tmp_path / "work/mlflow/1-train-1.json", {})  # a report, which is listed separately
    assert list_unfinished(tmp_path) == ["work/train"]
