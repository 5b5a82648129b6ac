"""Parts that several machines sampled become one folder, and whatever does not belong together is refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from styled import sampled

from harr.errors import CorpusError, DamagedFile
from harr.io.files import SUMS, check_sums, publish, read_json, read_jsonl, write_json
from harr.preferences.join import JOINED, join_parts


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole, and its halves."""
    folder = tmp_path_factory.mktemp("made")
    write_json(folder / "figures.json", sampled(folder / "whole"))
    for number in range(2):
        sampled(folder / f"part-{number}", num_partitions=2, partition=number)
    return folder


@pytest.fixture
def parts(made: Path, tmp_path: Path) -> list[Path]:
    """The halves, the second one first."""
    for number in range(2):
        shutil.copytree(made / f"part-{number}", tmp_path / f"part-{number}")
    return [tmp_path / "part-1", tmp_path / "part-0"]


def rewrite(part: Path, name: str, value: Any) -> None:
    """Another content, with the sums that it would have been published with."""
    write_json(part / name, value)
    (part / SUMS).unlink()
    publish(part, part.with_name("again"))
    part.with_name("again").rename(part)


def refused(folders: list[Path], tmp_path: Path) -> str:
    with pytest.raises((CorpusError, DamagedFile)) as error:
        join_parts(folders, tmp_path / "out", tmp_path / "work")
    assert not (tmp_path / "out").exists() and "\n" not in str(error.value)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_the_parts_joined_are_the_whole(made: Path, parts: list[Path], tmp_path: Path) -> None:
    figures = join_parts(parts, tmp_path / "out", tmp_path / "work")
    for name in JOINED:
        rows, whole = read_jsonl(tmp_path / "out" / name), read_jsonl(made / "whole" / name)
        assert rows == [row for part in reversed(parts) for row in read_jsonl(part / name)]
        assert sorted(map(str, rows)) == sorted(map(str, whole)) and rows
    for name in ("manifest.json", "prompts.json"):
        assert (tmp_path / "out" / name).read_bytes() == (made / "whole" / name).read_bytes()
    check_sums(tmp_path / "out", "", *JOINED, "manifest.json", "prompts.json", "figures.json")
    wanted = read_json(made / "figures.json")
    assert wanted == read_json(made / "whole/figures.json")
    assert figures.pop("queries") >= wanted.pop("queries")
    assert figures == pytest.approx(wanted)


def test_a_part_that_is_missing_or_there_twice_is_named(parts: list[Path], tmp_path: Path) -> None:
    said = refused(parts[:1], tmp_path)
    assert said == "part 0 of 2 is missing; sample it with filter.preferences.partition: 0, or add its folder"
    shutil.copytree(parts[0], tmp_path / "copy")
    said = refused([*parts, tmp_path / "copy"], tmp_path)
    assert said == "part-1 and copy are both part 1 of 2; give every part once"
    (tmp_path / "copy/held_out.jsonl").unlink()
    assert refused([parts[0], tmp_path / "copy"], tmp_path).startswith("copy/held_out.jsonl is missing; a part is the ")


def test_a_part_of_another_sampling_is_refused(parts: list[Path], tmp_path: Path) -> None:
    sampled(tmp_path / "other", num_partitions=2, partition=1, min_ap=0.5)
    said = refused([parts[1], tmp_path / "other"], tmp_path)
    assert said.startswith("other is no part of the sampling in part-0: settings.min_ap is 0.5, there 0.0; sample it ")
    known = read_json(parts[0] / "manifest.json")
    for name, value in {"index": "index-2", "seed": 9}.items():
        rewrite(parts[0], "manifest.json", known | {name: value})
        assert f"part-1 is no part of the sampling in part-0: {name} is {value}" in refused(parts[::-1], tmp_path)
    rewrite(parts[0], "manifest.json", known)
    rewrite(parts[0], "prompts.json", read_json(parts[0] / "prompts.json") | {"zero_shot": 0.3})
    assert refused(parts[::-1], tmp_path).startswith(
        "part-1/prompts.json is not that of part-0, so other prompts were "
    )
