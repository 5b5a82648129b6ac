"""`harr init` makes a project from what the wheel carries, and the command `harr` runs that project's code."""

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

import harr
from harr.errors import ParamsError
from harr.project import create
from harr.project.command import main
from harr.project.create import CODE, SETTINGS, create_project

ROOT = Path(__file__).parents[3]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def test_the_wheel_has_one_package_and_carries_what_a_project_is_made_of() -> None:
    assert WHEEL["packages"] == ["harr"]
    assert WHEEL["force-include"] == {name: f"harr/project/files/{name}" for name in sorted((*SETTINGS, *CODE))}
    assert all((ROOT / name).exists() for name in WHEEL["force-include"])


@pytest.mark.services
def test_a_project_is_made_and_its_commands_run(tmp_path: Path) -> None:
    """By what the wheel installs, by the table of pyproject.toml: no flows or tasks can be imported from elsewhere."""
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
    noted, flows = (mine / "code.json").read_text(), (mine / "flows/cli.py").read_text()
    (mine / "code.json").write_text(noted.replace(harr.__version__, "0.0.1"))
    (mine / "flows/cli.py").write_text(flows.replace("Train the retriever", "Mine: train the retriever"))
    told = run(mine, "--help")
    assert "this project is of harr 0.0.1, and" in told.stderr
    assert "Mine: train" in told.stdout, "the project's own flows are not what runs"


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


def test_a_stage_depends_on_the_code_that_it_depends_on_in_the_repository(tmp_path: Path) -> None:
    create_project(tmp_path / "mine")
    hashes = json.loads((tmp_path / "mine/code.json").read_text())
    assert hashes.pop("harr") == harr.__version__
    ours = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    theirs = yaml.safe_load((tmp_path / "mine/dvc.yaml").read_text())["stages"]
    assert list(ours) == list(theirs)
    for name, stage in ours.items():
        params = [one for one in theirs[name]["params"] if isinstance(one, str)]
        code = [key for one in theirs[name]["params"] if one not in params for key in one["code.json"]]
        assert params == stage["params"] and theirs[name]["outs"] == stage["outs"]
        assert ("code.json" in str(theirs[name]["params"])) == bool(code)
        named = {dep.removeprefix("harr/").removesuffix(".py") for dep in stage["deps"] if dep.startswith("harr/")}
        assert set(code) == named <= set(hashes)
        assert theirs[name].get("deps", []) == [dep for dep in stage["deps"] if not dep.startswith("harr/")]


def test_a_hash_follows_its_package_alone(tmp_path: Path) -> None:
    package = tmp_path / "harr/index"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    before, alone = create._hash(package), create._hash(package / "__init__.py")
    (package / "__pycache__").mkdir()
    (package / "__pycache__/x.pyc").write_bytes(b"1")
    assert create._hash(package) == before
    (package / "more.py").write_text("")
    assert create._hash(package) != before and create._hash(package / "__init__.py") == alone


def test_an_update_replaces_code_and_keeps_settings(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("mine")
    with pytest.raises(ParamsError, match=r"holds params\.yaml already; name a new folder, or `harr init --update"):
        create_project(tmp_path)
    assert (tmp_path / "params.yaml").read_text() == "mine" and not (tmp_path / "flows").exists()
    with pytest.raises(ParamsError, match=r"is no project that harr init made \(no code\.json\)"):
        create_project(tmp_path, update=True)
    (tmp_path / "params.yaml").unlink()
    create_project(tmp_path)
    for name in ("params.yaml", "recipes/mine.yaml", "flows/old.py", "data"):
        (tmp_path / name).write_text("mine")
    noted = json.loads((tmp_path / "code.json").read_text())
    (tmp_path / "code.json").write_text(json.dumps(noted | {"harr": "0.0.1"}))
    assert "params.yaml, prefect.yaml and results are as before" in create_project(tmp_path, update=True)
    assert [(tmp_path / name).exists() for name in ("recipes/mine.yaml", "flows/old.py", "data")] == [True, False, True]
    assert (tmp_path / "params.yaml").read_text() == "mine"
    assert json.loads((tmp_path / "code.json").read_text()) == noted
