"""Unfinished work of other parameters is kept, and its note says which they are."""

from pathlib import Path

import pytest

from harr.io.files import finish, note_published, read_json
from harr.io.resume import open_work


@pytest.mark.fault(21)
def test_work_of_other_parameters_is_kept_until_it_was_published(tmp_path: Path) -> None:
    folders = [open_work(tmp_path, {"steps": steps}) for steps in (1, 2)]
    for folder in folders:
        folder.mkdir()
    assert [open_work(tmp_path, {"steps": steps}) for steps in (1, 2)] == folders
    note_published(folders[0])
    finish(tmp_path)
    assert sorted(tmp_path.iterdir()) == [folders[1], folders[1].with_suffix(".json")]


def test_no_password_is_noted(tmp_path: Path) -> None:
    folder = open_work(tmp_path, {"places": [{"uri": "http://me:hidden@db:19530"}], "setup": "hash"}, setup={"k": 3})
    assert read_json(folder.with_suffix(".json")) == {"places": [{"uri": "http://db:19530"}], "setup": {"k": 3}}
