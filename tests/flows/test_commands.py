"""Stages as commands: wrong input gives one clear line and changes nothing."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from styled import sampled

from harr.io.files import read_json
from tasks import filter as stage_filter
from tasks.download import download
from tasks.runtime.command import run_command
from tasks.runtime.stage import perform

Run = Callable[..., subprocess.CompletedProcess[str]]


def change(**sections: object) -> None:
    """Edit params.yaml."""
    params = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(params | sections))


@pytest.mark.fault(20)
@pytest.mark.parametrize(
    ("section", "values", "line"),
    [
        ("train", {"groupsize": 4}, "unknown parameter train.groupsize; did you mean group_size?"),
        ("retriever", {"k": 31}, "retriever: k = 31 passages cannot be chosen from a pool of 30"),
        ("train", {"steps": "many"}, "train.steps: should be a valid integer"),
    ],
)
def test_a_wrong_parameter_is_one_line_before_anything_starts(
    workplace: Path, section: str, values: dict[str, object], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(**{section: yaml.safe_load(Path("params.yaml").read_text())[section] | values})
    before = sorted(workplace.iterdir())
    with pytest.raises(SystemExit) as end:
        run_command(lambda: perform("download", download, checks=True))
    out, told = capsys.readouterr()
    assert end.value.code == 1 and out == ""
    assert line in told and told.count("\n") == 1 and told.startswith("error: params.yaml: ")
    assert sorted(workplace.iterdir()) == before


@pytest.mark.services  # Great Expectations is loaded in a process of its own
def test_parts_of_several_machines_are_joined(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def joined(*parts: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            monkeypatch.setattr(sys, "argv", ["tasks.filter", "--join", *parts])
            stage_filter.main()
            sys.exit()
        return int(end.value.code or 0), *capsys.readouterr()

    for number in range(2):
        sampled(Path(f"parts/{number}"), num_partitions=2, partition=number)
    code, _, told = joined("parts/0")
    assert code == 1 and told.startswith("error: part 1 of 2 is missing; sample it with ") and told.count("\n") == 1
    assert not Path("data").exists()
    code, said, told = joined("parts/1", "parts/0")
    assert code == 0, told
    first, last = said.splitlines()
    figures = read_json(Path("metrics/filter.json"))
    expected = "joined 2 parts: {tried:.0f} questions tried, {kept:.0f} to learn from, {pairs:.0f} pairs and"
    assert first == f"{expected.format(**figures)} {figures['pairs_held_out']:.0f} held out" and figures["tried"] == 12
    assert last == "now: dvc commit -f filter" and figures["expected_preferences"] == 10
    lines = (Path("data/filtered/preferences.jsonl")).read_text().splitlines()
    assert len(lines) == figures["situations_that_teach"]
    assert Path("plots/filter.svg").exists() and Path("reports/preferences.html").exists()


@pytest.mark.services
@pytest.mark.parametrize("said", [{}, {"OMP_WAIT_POLICY": "ACTIVE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}])
def test_a_stage_leaves_cores_to_others_keeps_few_kernels_and_loads_no_client(
    said: dict[str, str], program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own word stands."""
    names = ("OMP_WAIT_POLICY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    told = (
        "import os, sys, tasks.runtime.stage as stage\n"
        f"{'' if said else 'import tasks.train, harr.builders.setup'}\n"
        "print('openai' in sys.modules, 'torch' in sys.modules)\n"
        f"stage.perform = lambda *_, checks: print(*map(os.environ.get, {names!r}))\n"
        "stage.run_stage('train', None)"
    )
    kept = " ".join(said.values()) or "PASSIVE 32"
    assert program("-c", told, **said).stdout.splitlines() == [f"False {not said}", f"{kept} 1"]
