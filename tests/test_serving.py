"""The vLLM commands that we ship: docker/compose.yaml, docs and recipes agree, and vLLM's own parser takes them."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harr.params import Params
from harr.params.generator import ServerParams

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
SERVICES = {name: spec for name, spec in COMPOSE.items() if spec["image"].startswith("vllm/")}
DOCS = [ROOT / "docs/serving.md", ROOT / "README.md", *sorted((ROOT / "recipes").glob("*.yaml"))]
PARSE = """
import json, sys
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(prog="vllm")
commands = parser.add_subparsers(dest="subparser")
for command in cmd_init():
    command.subparser_init(commands)
told = parser.parse_args(json.loads(sys.argv[1]))
names = ("model_tag", "host", "port", "runner", "convert", "enable_prefix_caching", "generation_config")
print("told " + json.dumps({name: getattr(told, name) for name in names}))
"""


def filled(text: str) -> str:
    """A compose value where no variable is set: ``${NAME:-default}`` is its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def shipped(service: str) -> list[str]:
    """The words after ``vllm`` of a service in docker/compose.yaml."""
    spec = SERVICES[service]
    assert spec["entrypoint"] == ["vllm", "serve"]
    return ["serve", *(filled(word) for word in spec["command"])]


def documented() -> list[tuple[str, list[str]]]:
    """Service and words after ``vllm`` of every whole command in the docs and recipes."""
    found = []
    for path in DOCS:
        for line in re.findall(r"^(?:#\s+)?vllm (serve \S.*)$", path.read_text(), re.MULTILINE):
            words = shlex.split(line)
            found.append(("embedder" if "--runner" in words else "generator", words))
    return found


def flags(words: list[str]) -> dict[str, str]:
    """Flags and their values, written with a space or with ``=``, without address and share of memory.

    >>> flags(["serve", "m", "--port=1", "--runner", "pooling", "--fast"])
    {'--runner': 'pooling', '--fast': ''}
    """
    text = " ".join(words[2:]).replace("=", " ")
    pairs = re.findall(r"(--[a-z-]+)(?: ((?!--)\S+))?", text)
    return {name: value for name, value in pairs if name not in ("--host", "--port", "--gpu-memory-utilization")}


def test_documents_and_containers_agree() -> None:
    commands = documented()
    assert {service for service, _ in commands} == set(SERVICES) == {"generator", "embedder"}
    assert len(commands) >= 6  # three in the document, one in each of three recipes
    for service, words in commands:
        assert flags(words) == flags(shipped(service)), words
        assert words[words.index("--host") + 1] == "127.0.0.1"
        assert f"--port={words[words.index('--port') + 1]}" in shipped(service)
    assert {shipped(service)[1] for service in SERVICES} <= {words[1] for _, words in commands}


def test_the_document_names_the_version_in_the_containers() -> None:
    (version,) = {spec["image"].rpartition(":v")[2] for spec in SERVICES.values()}
    assert f"The compose file pins {version}, " in (ROOT / "docs/serving.md").read_text()


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_with_qwen3_and_short_replies_lets_it_not_think(recipe: Path) -> None:
    generator = Params.load(recipe).generator
    if isinstance(generator, ServerParams) and generator.model.startswith("Qwen/Qwen3") and generator.max_tokens < 4096:
        assert generator.extra_body == {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize("service", ["generator", "embedder"])
def test_a_container_is_pinned_healthy_and_reached_from_this_machine_only(service: str) -> None:
    spec = SERVICES[service]
    assert re.fullmatch(r"vllm/vllm-openai:v\d+\.\d+\.\d+", spec["image"])
    port = next(word for word in spec["command"] if word.startswith("--port=")).removeprefix("--port=")
    assert spec["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"http://127.0.0.1:{port}/health" in spec["healthcheck"]["test"][-1]
    compile(spec["healthcheck"]["test"][-1], "health check", "exec")
    (device,) = spec["deploy"]["resources"]["reservations"]["devices"]
    assert any(re.match(r"--gpu-memory-utilization=\$\{\w+:-0\.\d\}$", word) for word in spec["command"])
    assert device["capabilities"] == ["gpu"] and device["driver"] == "nvidia"


def parse(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Let vLLM's own command line read ``vllm WORDS``, without a GPU."""
    return subprocess.run(
        [sys.executable, "-c", PARSE, json.dumps(words)],
        env={**os.environ, "VLLM_TARGET_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM lives in an environment of its own")
def test_vllm_takes_every_command() -> None:
    refused = parse(["serve", "m", "--task", "embed"])
    assert refused.returncode == 2 and "unrecognized arguments: --task" in refused.stderr, refused.stderr[-2000:]
    for service, words in [*((name, shipped(name)) for name in SERVICES), *documented()]:
        done = parse(words)
        assert done.returncode == 0, done.stderr[-2000:]
        told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("told "))[5:])
        assert told["model_tag"] == words[1] and told["port"] == {"generator": 8000, "embedder": 8001}[service]
        if service == "embedder":
            assert (told["runner"], told["convert"]) == ("pooling", "embed")
        else:
            assert (told["enable_prefix_caching"], told["generation_config"]) == (True, "vllm")
