"""Checks of the machine: each is seen to be content, and to find the fault that it is for."""

import sys
from pathlib import Path

import pytest

from flows.doctor.machine import check_git, check_versions
from flows.doctor.servers import check_secrets, servers
from harr.params import Params
from harr.params.servers import ServerParams
from harr.params.sources import ExaParams
from tests.serving import asking

ROOT = Path(__file__).parents[3]


def install(site: Path, name: str, version: str) -> None:
    """Package metadata as pip leaves it."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def smoke(**changes: object) -> Params:
    return Params.model_validate(Params.load(ROOT / "recipes/smoke.yaml").model_dump(exclude_unset=True) | changes)


@pytest.mark.fault(34)
def test_versions_that_break_prefect_are_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {one.level for one in check_versions(ROOT)} <= {"ok", "warn"}
    for name, version, effect in (
        ("fastapi", "0.165.0", "stops every Prefect flow run (seen from 0.155 on)"),
        ("fastapi", "0.151", "stops every Prefect flow run (seen from 0.155 on)"),
        ("sqlalchemy", "2.1.9", "lets no Prefect schedule fire"),
    ):
        install(tmp_path / version, name, version)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "path", [str(tmp_path / version), *sys.path])
            found = {one.subject: one for one in check_versions(tmp_path)}[name]
        assert found.level == "fail" and found.fix.startswith(f'pip install "{name}<')
        assert f"{version} {effect}" in found.found


def test_a_remedy_follows_from_what_git_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (found,) = check_git(tmp_path)
    assert found.fix == "git init && git add . && git commit -m start"


@pytest.mark.fault(34)
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "harr", "9")
    with (tmp_path / "harr-9.dist-info/METADATA").open("a") as lines:
        lines.write("Requires-Dist: no-such-package>=1\nRequires-Dist: neither; extra == 'lite'\n")
        lines.write("Requires-Dist: harr[lite]; extra == 'pipeline'\nRequires-Dist: unasked; extra == 'ray'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = {one.subject: one for one in check_versions(tmp_path)}
    assert found["packages"].level == "fail" and found["packages"].found == "not installed: neither, no-such-package"
    assert found["packages"].fix == "pip install --constraint constraints.txt 'harr[pipeline]'"


def test_a_secret_of_a_server_elsewhere_must_be_set() -> None:
    server = {
        "kind": "server",
        "server": {"urls": ["https://llm.example.org/v1"], "key_variable": "MY_KEY"},
        "model": "m",
    }
    params = smoke(generator=server)
    (found,) = check_secrets(params, {})
    assert (found.level, found.subject, found.fix) == ("warn", "$MY_KEY", "export MY_KEY=...")
    assert [one.level for one in check_secrets(params, {"MY_KEY": "x"})] == ["ok"]
    near = smoke(generator=server | {"server": {"urls": ["http://127.0.0.1:8000/v1"]}})
    assert [one.level for one in check_secrets(near, {})] == ["ok"]
    web = smoke().model_copy(update={"sources": {"News": ExaParams(kind="exa")}})
    assert [one.subject for one in check_secrets(web, {})] == ["$EXA_API_KEY"]


def test_every_server_is_known_wherever_a_section_names_it() -> None:
    writer = asking("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1")
    params = smoke()
    sections = {
        "generator": writer,
        "evaluate": params.evaluate.model_copy(update={"reader": writer}),
        "filter": params.filter.model_copy(update={"preferences": writer}),
        "sources": {"News": ExaParams(kind="exa", server=ServerParams(urls=("http://127.0.0.1:3",)))},
    }
    found = {one.section: one.urls for one in servers(params.model_copy(update=sections))}
    assert set(found) == {"generator", "evaluate.reader", "filter.preferences", "sources.News"}
    assert found["generator"] == ("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1")
