"""The state of stages is DVC's own, seen on a small project that the real DVC runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.doctor import stages
from flows.doctor.stages import check_stages, read_stages
from harr.errors import ParamsError

STAGES = """
stages:
  first:
    cmd: python -c "import pathlib as p; p.Path('out/deep').mkdir(parents=True); p.Path('out/deep/b').write_text('b');
      p.Path('out/a').write_text('a')"
    deps: [code]
    params: [one, two.part]
    outs: [out]
    metrics: [{first.json: {cache: false}}]
  second:
    cmd: python -c "open('end', 'w').write('x')"
    deps: [out]
    outs: [end]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stages that `dvc repro` has run."""
    folder = tmp_path_factory.mktemp("ran")
    text = STAGES.replace("open('end'", "open('end'").replace(
        "write_text('a')", "write_text('a'); open('first.json', 'w')"
    )
    (folder / "dvc.yaml").write_text(text.replace("python -c", f"{sys.executable} -c"))
    (folder / "params.yaml").write_text("one: {a: 1, b: [1, 2]}\ntwo: {part: x, other: y}\n")
    (folder / ".dvcignore").write_text("__pycache__\n.cache\n")
    (folder / "code/__pycache__").mkdir(parents=True)
    (folder / "code/z.py").write_text("1")
    (folder / "code/a_b.py").write_text("2")
    (folder / "code/a").mkdir()
    (folder / "code/a/c.py").write_text("3")
    for words in (("init", "--no-scm", "-q"), ("repro", "-q")):
        subprocess.run([sys.executable, "-m", "dvc", *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def place(ran: Path, tmp_path: Path) -> Path:
    shutil.copytree(ran, tmp_path / "place")
    return tmp_path / "place"


def states(place: Path) -> list[str]:
    return [stage.state for stage in read_stages(place)]


def stale(place: Path) -> bool:
    """What DVC itself says."""
    done = subprocess.run([sys.executable, "-m", "dvc", "status", "-q"], cwd=place, check=False)
    return done.returncode != 0


def test_after_a_run_all_is_fresh_by_content(place: Path) -> None:
    assert states(place) == ["fresh", "fresh"]
    (place / "code/__pycache__/z.pyc").write_text("ignored")
    assert states(place) == ["fresh", "fresh"] and not stale(place)
    assert check_stages(place)[0].level == "ok"


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("params.yaml", "one: {a: 2, b: [1, 2]}\ntwo: {part: x}\n", "one.a"),
        ("params.yaml", "one: {a: 1, b: [1, 2]}\ntwo: {part: z}\n", "two.part"),
        ("code/a/c.py", "4", "code"),
        ("code/new.py", "4", "code"),
        ("out/a", "c", "out"),
        ("first.json", "{}", "first.json"),
    ],
)
def test_a_change_is_named_and_dvc_agrees(path: str, text: str, reason: str, place: Path) -> None:
    (place / path).write_text(text)
    first, second = read_stages(place)
    assert (first.state, first.reasons) == ("changed", (reason,))
    assert second.state in ("follows", "changed")
    assert stale(place)
    assert check_stages(place)[0].level == "warn"


def test_a_link_to_nowhere_is_a_change(place: Path) -> None:
    (place / "code/link").symlink_to("nowhere")
    assert states(place)[0] == "changed"


def test_a_parameter_that_no_stage_reads_changes_nothing(place: Path) -> None:
    (place / "params.yaml").write_text("one: {a: 1, b: [1, 2]}\ntwo: {part: x, other: z}\n")
    assert states(place) == ["fresh", "fresh"] and not stale(place)


def test_what_is_missing_or_never_ran(place: Path) -> None:
    shutil.rmtree(place / "out")
    assert read_stages(place)[0].reasons == ("out (missing)",)
    (place / "dvc.lock").unlink()
    assert states(place) == ["never run", "never run"]


def test_large_outputs_only_look_fresh(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "HASHED_BYTES", 1)
    (place / "out/a").write_text("c")  # the same size
    assert "looks fresh" in states(place)
    (place / "out/a").write_text("longer")
    assert states(place)[0] == "changed"


def test_files_that_are_no_yaml(place: Path) -> None:
    (place / "dvc.lock").write_text("{")
    with pytest.raises(ParamsError, match=r"dvc.lock: not valid YAML"):
        read_stages(place)
