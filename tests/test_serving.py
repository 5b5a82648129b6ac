"""The vLLM commands that we ship: docker/compose.yaml, docs and recipes agree, and vLLM's own parser accepts them."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from vllm_cpu import environment

from harr.params import Params
from harr.params.generator import ServedParams

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
SERVICES = {name: spec for name, spec in COMPOSE.items() if spec["image"].startswith("vllm/")}
DOCS = [ROOT / "docs/serving.md", ROOT / "README.md", *sorted((ROOT / "recipes").glob("*.yaml"))]
PARSE = """
import contextlib, io, json, sys
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser
names = ("model_tag", "port", "runner", "convert", "enable_prefix_caching", "generation_config", "max_model_len")
parser = FlexibleArgumentParser(prog="vllm")
commands = parser.add_subparsers(dest="subparser")
for command in cmd_init():
    command.subparser_init(commands)
for words in json.load(sys.stdin):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = vars(parser.parse_args(words))
        print("read " + json.dumps({name: options[name] for name in names}))
    except SystemExit:
        print("read " + json.dumps({"refused": said.getvalue()[-500:]}))
"""


def filled(text: str) -> str:
    """Return a compose value with no variable set: ``${NAME:-default}`` is its default."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def shipped(service: str) -> list[str]:
    """Return the words after ``vllm`` of a service in docker/compose.yaml."""
    spec = SERVICES[service]
    assert spec["entrypoint"] == ["vllm", "serve"]
    return ["serve", *(filled(word) for word in spec["command"])]


def documented() -> list[tuple[str, list[str]]]:
    """Return service and words after ``vllm`` of every whole command in the docs and recipes."""
    found = []
    for path in DOCS:
        for line in re.findall(r"^(?:#\s+)?vllm (serve \S.*)$", path.read_text(), re.MULTILINE):
            words = shlex.split(line)
            found.append(("embedder" if "--runner" in words else "generator", words))
    return found


def flags(words: list[str]) -> dict[str, str]:
    """Return flags and their values, given with a space or ``=``, without address and memory share.

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
    (version,) = {spec["image"].rpartition(":v")[2] for spec in SERVICES.values()}
    assert f"The compose file pins {version}, " in " ".join((ROOT / "docs/serving.md").read_text().split())


def test_a_recipe_with_qwen3_and_short_replies_lets_it_not_think() -> None:
    for recipe in sorted((ROOT / "recipes").glob("*.yaml")):
        own = Params.load(recipe).generator
        if isinstance(own, ServedParams) and own.model.startswith("Qwen/Qwen3") and own.max_tokens < 4096:
            assert own.extra_body == {"chat_template_kwargs": {"enable_thinking": False}}, recipe


def test_a_container_gets_a_gpu_of_which_it_leaves_some() -> None:
    for spec in SERVICES.values():  # test_docker.py checks image, ports and health
        (device,) = spec["deploy"]["resources"]["reservations"]["devices"]
        assert any(re.match(r"--gpu-memory-utilization=\$\{\w+:-0\.\d\}$", word) for word in spec["command"])
        assert device["capabilities"] == ["gpu"] and device["driver"] == "nvidia"


def test_harr_takes_the_transformers_of_vllm() -> None:
    """vLLM 0.31 needs transformers below 5.18, which needs huggingface-hub below 2; 0.32 needs those of .ci/vllm."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    takes = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    installed = re.findall(r"(transformers|tokenizers|torch)==(\S+)", (ROOT / ".ci/vllm").read_text())
    assert len(installed) == 3
    older = [("transformers", "5.10.4"), ("transformers", "5.17.0"), ("huggingface-hub", "1.33.0")]
    for name, version in [*installed, *older, ("tokenizers", "0.22.2")]:
        assert takes[name].contains(version), (name, version)


def parse(commands: list[list[str]]) -> list[dict[str, Any]]:
    """Return what vLLM's own command line parses from each ``vllm WORDS``, in one process, without a GPU."""
    done = subprocess.run(
        [environment() / "bin/python", "-c", PARSE],
        input=json.dumps(commands),
        env={**os.environ, "VLLM_TARGET_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("read ")]


def others() -> list[list[str]]:
    """Return the words after ``vllm`` where variables or a path precede it, as for training servers."""
    texts = [(ROOT / "docs" / name).read_text() for name in ("serving.md", "gpus.md", "scale.md")]
    own = r"^(?:[A-Z_]+=\S+ |work/)\S*vllm (serve \S.*)$"
    return [shlex.split(words) for text in texts for words in re.findall(own, text, re.MULTILINE)]


@pytest.mark.vllm
def test_vllm_takes_every_command() -> None:
    commands = [*((name, shipped(name)) for name in SERVICES), *documented()]
    training = others()
    refused, *options = parse([["serve", "m", "--task", "embed"], *(words for _, words in commands), *training])
    assert "unrecognized arguments: --task" in refused["refused"]
    assert len(training) == 4 and len(options) == len(commands) + 4
    assert not any("refused" in one for one in options), options
    for (service, words), one in zip(commands, options, strict=False):
        assert one["model_tag"] == words[1] and one["port"] == {"generator": 8000, "embedder": 8001}[service]
        if service == "embedder":
            assert (one["runner"], one["convert"]) == ("pooling", "embed")
        else:
            assert (one["enable_prefix_caching"], one["generation_config"]) == (True, "vllm")
            assert one["max_model_len"] == 16384
