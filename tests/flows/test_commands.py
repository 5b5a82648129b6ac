"""Stages as commands: wrong input gives one clear line and changes nothing."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tasks.download import download
from tasks.runtime.command import run_command
from tasks.runtime.stage import perform

Run = Callable[..., subprocess.CompletedProcess[str]]


def change(**sections: object) -> None:
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
    out, error = capsys.readouterr()
    assert end.value.code == 1 and out == ""
    assert line in error and error.count("\n") == 1 and error.startswith("error: params.yaml: ")
    assert sorted(workplace.iterdir()) == before


@pytest.mark.services
@pytest.mark.parametrize("said", [{}, {"OMP_WAIT_POLICY": "ACTIVE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}])
def test_a_stage_leaves_cores_to_others_keeps_few_kernels_and_loads_no_client(
    said: dict[str, str], program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own settings win."""
    names = ("OMP_WAIT_POLICY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    code = (
        "import os, sys, tasks.runtime.stage as stage\n"
        f"{'' if said else 'import tasks.train, harr.builders.setup'}\n"
        "print('openai' in sys.modules, 'torch' in sys.modules)\n"
        f"stage.perform = lambda *_, checks: print(*map(os.environ.get, {names!r}))\n"
        "stage.run_stage('train', None)"
    )
    kept = " ".join(said.values()) or "PASSIVE 32"
    assert program("-c", code, **said).stdout.splitlines() == [f"False {not said}", f"{kept} 1"]
