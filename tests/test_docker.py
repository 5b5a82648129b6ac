"""What docker/ ships: files pass their schema and linter, and the real programs accept every command and variable.

No engine runs here. Prefect, MLflow, DVC's stages and the packages are those of this environment.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from contextlib import chdir
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
HADOLINT = Path(sys.executable).parent / "hadolint"
COMPOSE = ROOT / "docker/compose.yaml"
TEXT = COMPOSE.read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
DOCS = (ROOT / "docs/docker.md").read_text()
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
PASSWORDS = {"POSTGRES_PASSWORD", "MINIO_PASSWORD", "MILVUS_PASSWORD", "SERVE_TOKEN"}
PORTS = {"milvus": 19530, "prefect": 4200, "mlflow": 5000, "generator": 8000, "embedder": 8001, "serve": 8002}
IMAGES = {"cpu": f"harr:{harr.__version__}-cpu", "gpu": f"harr:{harr.__version__}-cuda"}
FOREIGN = {"minio", "milvus", "postgres"}


def environment(service: str) -> dict[str, str]:
    return SERVICES[service].get("environment", {})


def help_of(command: str) -> str:
    """Return the output of `harr COMMAND --help`."""
    found = CliRunner().invoke(app, [command, "--help"])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_compose_file_follows_the_compose_specification(tmp_path: Path) -> None:
    def checked(path: Path) -> Any:
        words = ["--builtin-schema", "vendor.compose-spec", str(path)]
        return click.testing.CliRunner().invoke(check_jsonschema.main, words)

    assert checked(COMPOSE).exit_code == 0, checked(COMPOSE).output
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(TEXT.replace("healthcheck:", "healthchek:"))
    assert "healthchek" in checked(wrong).output


@pytest.mark.services
@pytest.mark.skipif(not HADOLINT.exists(), reason="its package has a binary for Linux on x86 alone")
def test_the_dockerfile_passes_its_linter() -> None:
    done = subprocess.run([HADOLINT, ROOT / "docker/Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_service_is_pinned_waits_for_what_starts_with_it_and_reports_whether_it_is_well() -> None:
    both = {"etcd", "minio", "milvus", "postgres", "prefect", "mlflow"}
    for profile, others in {
        "cpu": {"worker", "stages"},
        "gpu": {"worker-gpu", "stages-gpu", "generator", "embedder"},
    }.items():
        assert {name for name, spec in SERVICES.items() if profile in spec["profiles"]} == both | others
    assert SERVICES["serve"]["profiles"] == ["serve"]  # nothing is promoted when the others start
    for name, spec in SERVICES.items():
        image, _, tag = spec["image"].rpartition(":")
        assert re.match(r"(v?\d+\.\d+(\.\d+)?(-[a-z]+)?|RELEASE\.\d{4}-.*)$", tag), name
        assert ("build" in spec) == (image in ("harr", "harr-server")) == (tag.split("-")[0] == harr.__version__), name
        for other, condition in spec.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert set(spec["profiles"]) <= set(SERVICES[other]["profiles"]), f"{name} would wait for {other} in vain"
        asked = spec["healthcheck"]["test"]
        if "-c" in asked:
            compile(asked[-1], name, "exec")
            (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", asked[-1])
            assert port == str(PORTS.get(name) or environment(name)["PREFECT_WORKER_WEBSERVER_PORT"]), name
    client = PINS["pymilvus"].split(".")[:2]
    assert SERVICES["milvus"]["image"].split(":v")[1].split(".")[:2] == client, "the same major and minor version"


def test_only_this_machine_reaches_the_ports() -> None:
    published = {name: spec["ports"] for name, spec in SERVICES.items() if "ports" in spec}
    assert published == {name: [f"127.0.0.1:{port}:{port}"] for name, port in PORTS.items()}
    networks = yaml.safe_load(TEXT)["networks"]
    for name in ("etcd", "minio", "postgres"):
        (network,) = SERVICES[name]["networks"]
        assert networks[network] == {"internal": True}
    assert all("network_mode" not in spec and "privileged" not in spec for spec in SERVICES.values())


def test_no_password_has_a_default() -> None:
    asked = re.findall(r"\$\{(\w+)(:?[-?][^}]*)?\}", TEXT)
    assert {variable for variable, rest in asked if rest.startswith(":?")} == PASSWORDS
    assert all(rest == f":?set {name} in docker/.env" for name, rest in asked if name in PASSWORDS)
    assert all(rest.startswith(":-") for name, rest in asked if name not in PASSWORDS)
    lines = (ROOT / "docker/.env.example").read_text().splitlines()
    offered = dict(line.split("=") for line in lines if line and not line.startswith("#"))
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
    pools = {each["work_pool"]["name"] for each in deployments}
    for profile in ("cpu", "gpu"):
        workers = [
            spec for spec in SERVICES.values() if spec["image"] == IMAGES[profile] and profile in spec["profiles"]
        ]
        commands = [parse(spec["command"][1:]) for spec in workers]
        assert {options["work_pool_name"] for options in commands} == pools, "every deployment has a worker"
        assert all(options["worker_type"] == "process" and options["limit"] == 1 for options in commands)
        assert all(options["with_healthcheck"] is True for options in commands)
    for line in re.findall(r"exec worker prefect (.*)", DOCS):
        parse(line.split())


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")  # on import of mlflow.cli
def test_mlflow_takes_its_command() -> None:
    from mlflow.cli import server

    def parse(words: list[str]) -> dict[str, Any]:
        return server.make_context("server", list(words)).params

    with pytest.raises(click.NoSuchOption):
        parse(["--allowed-host=x"])
    words = SERVICES["mlflow"]["command"]
    assert words[:2] == ["mlflow", "server"]
    options = parse(words[2:])
    assert (options["host"], options["port"], options["artifacts_destination"]) == (
        "0.0.0.0",
        PORTS["mlflow"],
        "/artifacts",
    )
    assert SERVICES["mlflow"]["volumes"] == ["artifacts:/artifacts"]
    assert "/artifacts " in re.search(r"install --directory.*", DOCKERFILE)[0]  # a new volume inherits its owner
    # The worker addresses the server by its service name, which MLflow must be told to accept.
    assert environment("worker")["MLFLOW_TRACKING_URI"].removeprefix("http://") in options["allowed_hosts"].split(",")


def test_every_variable_is_a_setting_of_its_program() -> None:
    import mlflow.environment_variables
    from prefect.settings import Settings
    from prefect.settings.legacy import _get_settings_fields

    known = {"DO_NOT_TRACK", "HF_TOKEN", "PGPASSWORD", "HARR_SERVE_TOKEN", IndexParams().token_variable}
    known |= set(_get_settings_fields(Settings))
    assert "PREFECT_SERVER_UI_API_URL" in known and "PREFECT_SERVER_UI_API_URI" not in known
    for name in set(SERVICES) - FOREIGN:
        for variable in environment(name):
            real = variable in known or hasattr(mlflow.environment_variables, variable)
            assert real, f"{name}: nobody reads {variable}"


def test_the_image_runs_what_it_holds() -> None:
    commands = [ast.literal_eval(line) for line in re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)]
    assert commands == [["prefect", "server", "start"], ["python", "-m", "flows.cli", "run"]]
    serve = SERVICES["serve"]["command"]
    assert serve[:3] == ["python", "-m", "flows.cli"] and "HARR_SERVE_TOKEN" in help_of("serve")
    lines = [line.split() for line in re.findall(r"exec worker python -m flows.cli (.*)", DOCS)]
    for command, *words in (["run"], serve[3:], *lines):
        assert all(word.split("=")[0] in help_of(command) for word in words if word.startswith("--")), command
    users = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert users == ["${USER_ID}"] * 2 and "ARG USER_ID=1000" in DOCKERFILE


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
    more = SERVICES["worker-gpu"]["build"]["args"]["MORE"]
    monkeypatch.setenv("EXTRAS", extras)
    monkeypatch.setenv("MORE", more)
    with chdir(ROOT):
        exec(expression, {})
    installed = capsys.readouterr().out.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in [*extras.split(), more] for one in named[name])]
    nested = {name for one in wanted if one.startswith("harr[") for name in one[5:-1].split(",")}
    assert nested <= set(extras.split())
    assert installed == [one for one in wanted if not one.startswith("harr[")]


def test_the_image_holds_what_the_stages_need_and_nothing_secret() -> None:
    copies = re.findall(r"^COPY (?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} - {".dvc"} == sources  # only for its config
    assert ignored[1] == "*"
    for stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values():
        for dep in stage.get("deps", ()):
            assert dep.split("/")[0] in sources | {"data", "models", "metrics", "plots"}, dep
    assert "/docker/.env" in (ROOT / ".gitignore").read_text().split()


def test_a_pod_of_the_kubernetes_pool_follows_the_schema_of_kubernetes() -> None:
    """Prefect's own templating fills it with a run's variables, as its worker does."""
    import kubernetes_validate
    from prefect.utilities.templating import apply_values

    template = json.loads((ROOT / "docker/kubernetes.json").read_text())
    properties = template["variables"]["properties"]
    given = {"name": "train", "command": ["prefect", "flow-run", "execute"], "labels": {"app": "harr"}}
    values = {name: item["default"] for name, item in properties.items() if "default" in item} | given
    values |= {"env": [{"name": "HARR_COMMIT", "value": "0" * 40}], "node_selector": {"gpu": "a100"}}
    assert values.keys() == properties.keys()
    job = apply_values(template["job_configuration"]["job_manifest"], values)
    pod = job["spec"]["template"]["spec"]
    assert pod.pop("parallelism") == pod.pop("completions") == 1, "Prefect wants them there, Kubernetes drops them"
    kubernetes_validate.validate(job, "1.33", strict=True)
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1 and pod["nodeSelector"] == {"gpu": "a100"}
    pod["restartpolicy"] = pod.pop("restartPolicy")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.33", strict=True)
