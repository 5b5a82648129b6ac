"""`harr init` makes a project from the wheel's files, and the command `harr` runs that project's code."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from harr_local.doctor import check_git

import harr
from harr.errors import ParamsError
from harr.io.files import write_text
from harr.project.command import main
from harr.project.create import BEGIN_GIT, CODE, SETTINGS, VERSION, create_project

ROOT = Path(__file__).parents[3]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def test_the_wheel_has_one_package_and_carries_what_a_project_is_made_of() -> None:
    assert WHEEL["packages"] == ["harr"]
    assert WHEEL["force-include"] == {name: f"harr/project/files/{name}" for name in sorted((*SETTINGS, *CODE))}
    assert all((ROOT / name).exists() for name in WHEEL["force-include"])


@pytest.mark.services
def test_a_project_is_made_and_its_commands_run(tmp_path: Path) -> None:
    """Only what the wheel installs, by pyproject.toml's table, is there: flows and tasks cannot come from elsewhere."""
    site, script, mine = tmp_path / "site", tmp_path / "command", tmp_path / "mine"
    for source, target in {**{name: name for name in WHEEL["packages"]}, **WHEEL["force-include"]}.items():
        (site / target).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile
        copy(ROOT / source, site / target)
    script.write_text("from harr.project.command import main\nmain()\n")
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}

    def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), *words]
        return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True)

    assert "harr run --recipe smoke" in run(tmp_path, "init", "mine").stdout
    assert not (mine / "harr").exists() and (mine / "recipes/smoke.yaml").exists()
    assert json.loads(run(mine, "preview", "--examples", "0", "--json").stdout)["questions"] == 1200
    flows = (mine / "flows/cli.py").read_text()
    (mine / VERSION).write_text("0.0.1")
    (mine / "flows/cli.py").write_text(flows.replace("Train the retriever", "Mine: train the retriever"))
    done = run(mine, "--help")
    assert "this project is of harr 0.0.1, and" in done.stderr
    assert "Mine: train" in done.stdout, "the project's own flows are not what runs"


@pytest.mark.services
def test_another_version_makes_stale_what_it_computes_otherwise(tmp_path: Path) -> None:
    """Wheels that differ in a docstring, a plot or a default; DVC compares the files of inputs."""
    site, mine = tmp_path / "site", tmp_path / "mine"
    shutil.copytree(ROOT / "harr", site / "harr", ignore=shutil.ignore_patterns("__pycache__"))
    create_project(mine)
    shutil.copy(ROOT / "recipes/smoke.yaml", mine / "params.yaml")

    def stale(file: str, before: str, after: str) -> set[str]:
        text = (site / file).read_text()
        assert before in text
        (site / file).write_text(text.replace(before, after))
        environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        known = {path: path.read_bytes() for path in mine.glob("data/inputs/*.json")}
        subprocess.run([sys.executable, "-m", "tasks.inputs"], cwd=mine, env=environment, check=True)
        return {path.stem for path in mine.glob("data/inputs/*.json") if known.get(path) != path.read_bytes()}

    assert len(stale("harr/errors.py", "rror", "rror")) == 10, "the first time"
    assert stale("harr/train/grpo.py", "GRPO for a dense", "Group-relative optimisation for a dense") == set()
    assert stale("harr/report/plots.py", "#0072b2", "#0072b3") == set()
    rate = "final_rate: Fraction = 1.0"
    assert stale("harr/params/loop.py", rate, rate.replace("1.0", "0.9")) == {"train", "arms", "report"}


def test_outside_a_project_and_in_no_folder_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    nowhere = f"error: no harr project in {tmp_path}; change to the folder of one, or make one: `harr init DIR`"
    for words, said in (
        (["run", "--recipe", "smoke"], re.escape(nowhere)),
        ([], re.escape(nowhere)),
        (["init", "file/mine"], "error: file/mine.*; name another folder"),
    ):
        monkeypatch.setattr(sys, "argv", ["harr", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert re.fullmatch(said, str(ended.value.code))
    monkeypatch.setattr(sys, "argv", ["harr", "--help"])
    main()
    assert capsys.readouterr().out.startswith("Usage: harr init ") and [*tmp_path.iterdir()] == [tmp_path / "file"]


def test_code_of_another_version_that_does_not_fit_is_reported_with_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "flows"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["harr", "status"])
    write_text(tmp_path / "flows/__init__.py", "")
    write_text(tmp_path / "flows/cli.py", "from harr.errors import gone\n")
    with pytest.raises(ImportError):
        main()
    write_text(tmp_path / "flows/cli.py", "import no_such_package.part\n")
    with pytest.raises(SystemExit, match=r"^error: package no_such_package is not installed; run `pip install 'harr"):
        main()
    write_text(tmp_path / "flows/cli.py", "from harr.errors import gone\n")
    write_text(tmp_path / VERSION, "0.0.1\n")
    with pytest.raises(SystemExit, match=r"^error: cannot import name 'gone' from 'harr\.errors'"):
        main()
    line = f"this project is of harr 0.0.1, and {harr.__version__} is installed; run `harr init --update .`\n"
    assert capsys.readouterr().err == line


def test_an_update_replaces_code_and_keeps_settings(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("mine")
    with pytest.raises(ParamsError, match=r"holds params\.yaml already; name a new folder$"):
        create_project(tmp_path)
    assert (tmp_path / "params.yaml").read_text() == "mine" and not (tmp_path / "flows").exists()
    with pytest.raises(ParamsError, match=r"is no project that harr init made \(no \.harr-version\)"):
        create_project(tmp_path, update=True)
    (tmp_path / "params.yaml").unlink()
    create_project(tmp_path)
    with pytest.raises(ParamsError, match="name a new folder, or `harr init --update"):
        create_project(tmp_path)
    for name in ("params.yaml", "recipes/mine.yaml", "flows/old.py", "data"):
        (tmp_path / name).write_text("mine")
    (tmp_path / VERSION).write_text("0.0.1")
    secret = "[core]\n    no_scm = true\n['remote \"team\"']\n    secret_access_key = s\n"
    (tmp_path / ".dvc/config.local").write_text(secret)
    assert "params.yaml, prefect.yaml and results are as before" in create_project(tmp_path, update=True)
    assert [(tmp_path / name).exists() for name in ("recipes/mine.yaml", "flows/old.py", "data")] == [True, False, True]
    assert (tmp_path / "params.yaml").read_text() == "mine"
    assert (tmp_path / VERSION).read_text() == f"{harr.__version__}\n"
    assert (tmp_path / ".dvc/config.local").read_text() == secret


def test_a_project_below_a_repository_is_in_its_git(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    made = create_project(mine := tmp_path / "team/mine")
    assert BEGIN_GIT not in made and not (mine / ".dvc/config.local").exists()
    assert not [one for one in check_git(mine) if BEGIN_GIT in one.fix]


@pytest.mark.services
def test_git_that_begins_after_a_run_keeps_nothing_of_dvc_and_dvc_works_with_it(tmp_path: Path) -> None:
    made = create_project(tmp_path)
    outs = [
        one for stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values() for one in stage["outs"]
    ]
    names = [next(iter(one)) if isinstance(one, dict) else one for one in outs]
    names = [name if Path(name).suffix else f"{name}/file" for name in names]
    for name in ("metrics/headline.json", "plots/train.svg", ".dvc/cache/files/md5/00/0", *names):
        write_text(tmp_path / name, "as a run wrote it")
    (finding,) = check_git(tmp_path)
    begin, _ = finding.fix.split(" && git add")
    assert begin == BEGIN_GIT and f"  {BEGIN_GIT} " in made
    for command in ("git init -q", "git add .", "git -c user.name=me -c user.email=me@localhost commit -qm start"):
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    kept = subprocess.run(["git", "ls-files"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in kept if name.startswith(("data", "models", "metrics", "plots", "reports", ".dvc"))} == {
        ".dvc/.gitignore",
        ".dvc/config",
        ".dvcignore",
        "metrics/headline.json",
        "plots/train.svg",
    }
    (finding,) = check_git(tmp_path)
    assert finding.level == "warn" and "core.no_scm is set in .dvc/config.local" in finding.found
    words = finding.fix.split()
    subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, check=True)
    (finding,) = check_git(tmp_path)
    assert (finding.level, finding.found) == ("ok", "a repository, and no dvc.lock waits to be committed")
    subprocess.run([sys.executable, "-m", "dvc", "exp", "list"], cwd=tmp_path, check=True)
