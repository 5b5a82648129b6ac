"""What docker/ ships: the files pass their schema and linter, and the real programs take every command and variable.

No engine runs here. Prefect, MLflow, DVC's stages and the packages are those of this environment.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import check_jsonschema
import click
import click.testing
import cyclopts
import pytest
import yaml
from typer.testing import CliRunner

import harr
from flows.cli import app
from harr.params.index import IndexParams

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
COMPOSE = ROOT / "docker/compose.yaml"
TEXT = COMPOSE.read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
EXAMPLE = (ROOT / "docker/.env.example").read_text()
DOCS = (ROOT / "docs/docker.md").read_text()
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
PASSWORDS = {"POSTGRES_PASSWORD", "MINIO_PASSWORD", "MILVUS_PASSWORD", "SERVE_TOKEN"}
PORTS = {"milvus": 19530, "prefect": 4200, "mlflow": 5000, "generator": 8000, "embedder": 8001, "serve": 8002}
OWN = ("harr", "harr-server")
# Programs that are not here: what their documentation names.
ETCD = """--advertise-client-urls --listen-client-urls --data-dir --auto-compaction-mode --auto-compaction-retention
    --quota-backend-bytes --snapshot-count""".split()
COMMANDS = {"minio": ["server", "/data"], "milvus": ["milvus", "run", "standalone"]}
FOREIGN = {
    "minio": {"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "MINIO_BROWSER"},
    "milvus": {
        *("ETCD_ENDPOINTS", "MINIO_ADDRESS", "MINIO_ACCESS_KEY_ID", "MINIO_SECRET_ACCESS_KEY"),
        *("COMMON_SECURITY_AUTHORIZATIONENABLED", "COMMON_SECURITY_DEFAULTROOTPASSWORD"),
    },
    "postgres": {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB"},
}


def environment(service: str) -> dict[str, str]:
    return SERVICES[service].get("environment", {})


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, check=False)


def help_of(command: str) -> str:
    """What `harr COMMAND --help` prints."""
    found = CliRunner().invoke(app, [command, "--help"])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_compose_file_follows_the_compose_specification(tmp_path: Path) -> None:
    def checked(path: Path) -> Any:
        return click.testing.CliRunner().invoke(
            check_jsonschema.main, ["--builtin-schema", "vendor.compose-spec", str(path)]
        )

    assert checked(COMPOSE).exit_code == 0, checked(COMPOSE).output
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(TEXT.replace("healthcheck:", "healthchek:"))
    assert "healthchek" in checked(wrong).output


@pytest.mark.services
@pytest.mark.skipif(not (BIN / "hadolint").exists(), reason="its package has a binary for Linux on x86 alone")
def test_the_dockerfile_passes_its_linter(tmp_path: Path) -> None:
    done = run(BIN / "hadolint", ROOT / "docker/Dockerfile")
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(re.sub(r"FROM python:\S+", "FROM python:latest", DOCKERFILE))
    assert "DL3007" in run(BIN / "hadolint", wrong).stdout


def test_the_services_and_their_profiles() -> None:
    both = {"etcd", "minio", "milvus", "postgres", "prefect", "mlflow"}
    for profile, others in {"cpu": {"worker"}, "gpu": {"worker-gpu", "generator", "embedder"}}.items():
        assert {name for name, spec in SERVICES.items() if profile in spec["profiles"]} == both | others
    assert SERVICES["serve"]["profiles"] == ["serve"]  # nothing is promoted when the others start
    for name, spec in SERVICES.items():
        for other, condition in spec.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert set(spec["profiles"]) <= set(SERVICES[other]["profiles"]), f"{name} would wait for {other} in vain"


def test_only_this_machine_reaches_the_ports() -> None:
    published = {name: spec["ports"] for name, spec in SERVICES.items() if "ports" in spec}
    assert published == {name: [f"127.0.0.1:{port}:{port}"] for name, port in PORTS.items()}
    networks = yaml.safe_load(TEXT)["networks"]
    for name in ("etcd", "minio", "postgres"):
        (network,) = SERVICES[name]["networks"]
        assert networks[network] == {"internal": True}
    assert all("network_mode" not in spec and "privileged" not in spec for spec in SERVICES.values())


def test_an_image_is_pinned() -> None:
    for name, service in SERVICES.items():
        image, _, tag = service["image"].rpartition(":")
        assert re.match(r"(v?\d+\.\d+(\.\d+)?(-[a-z]+)?|RELEASE\.\d{4}-.*)$", tag), name
        if image in OWN:
            assert tag.split("-")[0] == harr.__version__
            assert service["build"]["dockerfile"] == "docker/Dockerfile"
        else:
            assert "build" not in service, name
    client = PINS["pymilvus"].split(".")[:2]
    assert SERVICES["milvus"]["image"].split(":v")[1].split(".")[:2] == client, "the same major and minor version"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_tells_whether_it_is_well(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert {"test", "interval", "timeout", "retries", "start_period"} == set(check)
    assert check["test"][0] == "CMD"
    if "-c" in check["test"]:
        code = check["test"][-1]
        compile(code, name, "exec")
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", code)
        told = PORTS.get(name) or environment(name)["PREFECT_WORKER_WEBSERVER_PORT"]
        assert port == str(told)
        if name in PORTS:
            assert f"--port={port}" in SERVICES[name]["command"]


def test_no_password_has_a_default() -> None:
    asked = re.findall(r"\$\{(\w+)(:?[-?][^}]*)?\}", TEXT)
    assert {variable for variable, rest in asked if rest.startswith(":?")} == PASSWORDS
    assert all(rest == f":?set {name} in docker/.env" for name, rest in asked if name in PASSWORDS)
    assert all(rest.startswith(":-") for name, rest in asked if name not in PASSWORDS)
    offered = dict(line.split("=") for line in EXAMPLE.splitlines() if line and not line.startswith("#"))
    assert set(offered) == {name for name, _ in asked} and not any(offered.values())
    for name in SERVICES:
        for variable, value in environment(name).items():
            if re.search("PASSWORD|TOKEN|SECRET", variable):
                assert re.fullmatch(r"(root:)?\$\{\w+:[^}]*\}", value), f"{name}: {variable} holds a secret"


def test_prefect_takes_its_commands() -> None:
    from prefect.cli._app import _app

    def parse(words: list[str]) -> dict[str, Any]:
        return _app.parse_args(words, exit_on_error=False, print_error=False)[1].arguments

    with pytest.raises(cyclopts.exceptions.UnknownOptionError, match="--typo"):
        parse(["worker", "start", "--pool=cpu", "--typo=process"])
    server = SERVICES["prefect"]["command"]
    assert server[0] == "prefect"
    assert parse(server[1:]) == {"host": "0.0.0.0", "port": PORTS["prefect"]}
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    (pool,) = {each["work_pool"]["name"] for each in deployments if each["name"] in ("nightly", "on-demand", "promote")}
    for name in ("worker", "worker-gpu"):
        words = SERVICES[name]["command"]
        told = parse(words[1:])
        assert words[0] == "prefect" and told["work_pool_name"] == pool and told["worker_type"] == "process"
        assert told["with_healthcheck"] is True and told["limit"] == 1
    said = re.findall(r"exec worker prefect (?:--no-prompt )?(.*)", DOCS)
    assert len(said) >= 2
    for line in said:
        parse(line.split())


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")  # as mlflow.cli is imported
def test_mlflow_takes_its_command() -> None:
    from mlflow.cli import server

    def parse(words: list[str]) -> dict[str, Any]:
        return server.make_context("server", list(words)).params

    with pytest.raises(click.NoSuchOption):
        parse(["--allowed-host=x"])
    words = SERVICES["mlflow"]["command"]
    assert words[:2] == ["mlflow", "server"]
    told = parse(words[2:])
    assert (told["host"], told["port"], told["artifacts_destination"]) == ("0.0.0.0", PORTS["mlflow"], "/artifacts")
    assert SERVICES["mlflow"]["volumes"] == ["artifacts:/artifacts"]
    assert "/artifacts " in re.search(r"install --directory.*", DOCKERFILE)[0]  # a new volume takes its owner
    assert "CREATE DATABASE mlflow;" in (ROOT / "docker/databases.sql").read_text()
    # The worker names the server by its service, which MLflow refuses where it is not told the name.
    assert environment("worker")["MLFLOW_TRACKING_URI"].removeprefix("http://") in told["allowed_hosts"].split(",")


def test_programs_that_are_not_here_get_documented_flags_only() -> None:
    words = SERVICES["etcd"]["command"]
    assert words[0] == "etcd" and [word.split("=")[0] for word in words[1:]] == ETCD
    assert {name: SERVICES[name]["command"] for name in COMMANDS} == COMMANDS
    assert {name: set(environment(name)) for name in FOREIGN} == FOREIGN


def test_every_variable_is_a_setting_of_its_program() -> None:
    import mlflow.environment_variables
    from prefect.settings import Settings
    from prefect.settings.legacy import _get_settings_fields

    known = {"DO_NOT_TRACK", "HF_TOKEN", "PGPASSWORD", "HARR_SERVE_TOKEN", IndexParams().token_variable}
    prefect = set(_get_settings_fields(Settings))
    assert "PREFECT_SERVER_UI_API_URL" in prefect and "PREFECT_SERVER_UI_API_URI" not in prefect
    for name in set(SERVICES) - set(FOREIGN):
        for variable in environment(name):
            real = variable in prefect | known or hasattr(mlflow.environment_variables, variable)
            assert real, f"{name}: nobody reads {variable}"


def test_the_image_runs_what_it_holds() -> None:
    commands = [ast.literal_eval(line) for line in re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)]
    assert commands == [["prefect", "server", "start"], ["python", "-m", "flows.cli", "run"]]
    serve = SERVICES["serve"]["command"]
    assert serve[:4] == ["python", "-m", "flows.cli", "serve"] and "HARR_SERVE_TOKEN" in help_of("serve")
    told = [line.split() for line in re.findall(r"exec worker python -m flows.cli (.*)", DOCS)]
    for command, *words in (["run"], serve[3:], *told):
        assert all(word.split("=")[0] in help_of(command) for word in words if word.startswith("--")), command
    users = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert users == ["${USER_ID}"] * 2 and "ARG USER_ID=1000" in DOCKERFILE
    assert SERVICES["worker"]["build"]["args"]["TORCH"] == "cpu"
    assert SERVICES["worker-gpu"]["build"]["args"]["TORCH"] == "cuda"


def test_the_image_installs_pinned_versions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = re.findall(r"^(?:RUN|\s+&&|\s+\w+\)).*pip install.*$", DOCKERFILE, re.MULTILINE)
    assert len(lines) == 4 and all("--constraint constraints.txt" in line for line in lines)
    named = re.search(r"pip install --constraint constraints.txt (prefect .*)", DOCKERFILE)[1].split()
    lower = {name.lower() for name in PINS}
    assert set(named) | {"uv", "torch", "asyncpg"} <= lower
    expression = re.search(r'python -c "(import os, tomllib.*?)" ', DOCKERFILE, re.DOTALL)[1].replace("\\\n", "")
    (extras,) = re.findall(r'^ARG EXTRAS="(.*)"$', DOCKERFILE, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("EXTRAS", extras)
    exec(expression, {})
    installed = capsys.readouterr().out.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in extras.split() for one in named[name])]
    nested = {name for one in wanted if one.startswith("harr[") for name in one[5:-1].split(",")}
    assert nested <= set(extras.split())
    assert installed == [one for one in wanted if not one.startswith("harr[")]


def test_the_image_holds_what_the_stages_need_and_nothing_secret() -> None:
    copies = re.findall(r"^COPY (?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    assert all((ROOT / source).exists() for source in sources)
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed - {".dvc"} == sources  # the folder is let in for its config alone
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
    for stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values():
        for dep in stage["deps"]:
            assert dep.split("/")[0] in sources | {"data", "models", "metrics", "plots"}, dep
    ignored = run("git", "-C", ROOT, "check-ignore", "docker/.env", "docker/.env.example").stdout.split()
    assert ignored == ["docker/.env"]


def test_the_document_names_services_ports_and_passwords() -> None:
    assert all(f"`{name}`" in DOCS for name in SERVICES)
    assert all(f"127.0.0.1:{port}" in DOCS for port in PORTS.values())
    for profile in ("cpu", "gpu"):
        assert f"docker compose -f docker/compose.yaml --profile {profile} up --detach --wait" in DOCS
    assert all(os.path.exists(ROOT / path) for path in re.findall(r"`(docker/[\w./]+)`", DOCS) if path != "docker/.env")
