"""What `harr doctor` looks at: each check is seen to find the fault that it is for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harr_local import doctor
from harr_local.doctor import check_git, check_packages, check_precision, check_started, examine

from harr.compute import precision as precisions
from harr.io.files import write_json
from harr.params import Params
from tasks.tracking.execution import process_name

ROOT = Path(__file__).parents[3]


def install(site: Path, name: str, version: str, more: str = "") -> None:
    """Package metadata as pip leaves it."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")


@pytest.mark.fault(34)
@pytest.mark.parametrize(("name", "version"), [("fastapi", "0.151"), ("sqlalchemy", "2.1.9")])
def test_versions_that_break_prefect_are_failures(
    name: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [one.level for one in check_packages(ROOT)] == ["ok"]
    install(tmp_path, name, version)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (found,) = check_packages(ROOT)
    assert found.level == "fail" and found.found.startswith(f"{name} {version}, expected <")


@pytest.mark.fault(34)
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = (
        "no-such-package>=1",
        "neither; extra == 'lite'",
        "harr[lite]; extra == 'pipeline'",
        "unasked; extra == 'ray'",
    )
    install(tmp_path, "harr", "9", "".join(f"Requires-Dist: {one}\n" for one in needs))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (found,) = check_packages(tmp_path)
    assert found.level == "fail" and found.found == "no-such-package is missing, neither is missing"
    assert found.fix == "pip install --constraint constraints.txt 'harr[pipeline]'"


def test_of_a_folder_without_git_it_says_how_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (found,) = check_git(tmp_path)
    assert found.fix == "git init && git add . && git commit -m start"


def test_a_repository_that_git_refuses_to_read_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".git/config").write_text("[core\n")
    (found,) = check_git(tmp_path)
    assert "bad config" in found.found and "git init" not in found.fix


def test_what_was_started_and_has_ended_is_named(tmp_path: Path) -> None:
    (tmp_path / ".harr").mkdir()
    alive, gone = {"process": process_name(), "page": ""}, {"process": "0-1-2", "page": ""}
    write_json(tmp_path / ".harr/up.json", {"Prefect": alive, "worker gpu": gone})
    (found,) = check_started(tmp_path)
    assert (found.level, found.subject, found.fix) == ("warn", "worker gpu", "harr up")


@pytest.mark.parametrize(("precision", "native", "warned"), [("bfloat16", 0, 1), ("bfloat16", 1, 0), ("auto", 0, 0)])
def test_a_number_format_that_the_machine_emulates_is_named(
    precision: str, native: int, warned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda: bool(native))
    text = (ROOT / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(text.replace("precision: auto", f"precision: {precision}"))
    assert len(check_precision(Params.load(tmp_path / "params.yaml"))) == warned


def test_a_check_with_a_bug_and_a_section_that_nobody_reads_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*values: object) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(doctor, "check_git", bug)
    shutil.copy(ROOT / "recipes/smoke.yaml", tmp_path / "params.yaml")
    with (tmp_path / "params.yaml").open("a") as lines:
        lines.write("\nplugins: {bridge: {}, brigde: {}}\n")
    found = {one.subject: one for one in examine(tmp_path, {})}
    assert found["git"].level == "fail" and found["git"].found == "cannot be looked at (RuntimeError: first second)"
    assert found["plugins.brigde"].level == "warn"
    assert {found[name].level for name in ("params.yaml", "packages", "MLflow")} == {"ok"}
