"""Every command of README and docs is in one of two tables: what runs it, or what it needs that a test has not."""

import re
from collections.abc import Iterator

import pytest
from test_pages import PAGES, ROOT

PROGRAMS = ("harr", "make", "python", "dvc", "docker", "accelerate", "vllm", "pip")
RUN = {  # a file that runs it, or the function that it calls
    "dvc commit": "tests/flows/test_commands.py",
    "dvc exp": "tests/test_dvc.py",
    "dvc metrics": "tests/test_dvc.py",
    "dvc params": "tests/test_dvc.py",
    "dvc plots": "tests/test_dvc.py",
    "dvc pull": "tests/test_dvc_remote.py",
    "dvc push": "tests/test_dvc_remote.py",
    "dvc remote": "tests/test_dvc_remote.py",
    "dvc repro": "tests/test_dvc_remote.py",
    "dvc status": "tests/test_dvc_remote.py",
    "harr ask": "tests/tasks/test_ask.py",
    "harr bridge": "tests/tasks/test_bridge.py",
    "harr convert": "tests/tasks/test_convert.py",
    "harr demonstrations": "tests/tasks/test_demonstrations.py",
    "harr diagnose": "tests/tasks/test_diagnose.py",
    "harr doctor": "tests/flows/test_cli.py",
    "harr down": "tests/flows/test_up.py",
    "harr evaluate": "tests/harr/evaluate/test_trec.py",
    "harr init": "tests/harr/project/test_create.py",
    "harr lengths": "tests/flows/test_lengths.py",
    "harr merge": "tests/harr/merge/test_llm.py",
    "harr mteb": "tests/harr/library/test_mteb_search.py",
    "harr preview": "tests/flows/test_cli.py",
    "harr promote": "tests/flows/test_up.py",
    "harr pull": "tests/test_dvc_remote.py",
    "harr push": "tests/flows/test_push.py",
    "harr questions": "tests/flows/test_cli.py",
    "harr register": "tests/test_dvc_remote.py",
    "harr replay": "tests/harr/serve/test_shadow.py",
    "harr report": "tests/flows/test_cli.py",
    "harr rollback": "tests/tasks/registry/test_machine.py",
    "harr run": "tests/flows/test_pages.py",
    "harr serve": "examples/tour.py",
    "harr status": "tests/flows/test_cli.py",
    "harr stopping": "tests/harr/evaluate/test_stopping.py",
    "harr ui": "tests/flows/test_pages.py",
    "harr up": "tests/flows/test_up.py",
    "make docs": ".ci/run",
    "make lint": ".ci/run",
    "make run": ".ci/smoke",
    "make smoke": ".ci/run",
    "make test": ".ci/run",
    "make types": ".ci/run",
    "make unit": ".github/workflows/ci.yml",
    "python examples/grpo_flat.py": "tests/test_examples.py",
    "python examples/new_pipeline.py": "tests/test_examples.py",
    "python examples/new_reward.py": "tests/test_examples.py",
    "python examples/tour.py": "tests/test_tour.py",
    "python flows.files": "tests/flows/test_files.py",
    "python flows.filter": "tests/flows/test_commands.py",
    "python harr.params.schema": "tests/harr/params/test_schema.py",
}
NEEDS = {
    "accelerate launch": "several processes for hours; tests/launching.py starts two, as it does",
    "docker compose": "Docker; tests/test_docker.py checks the file and the commands in it",
    "dvc queue": "a queue of trainings, hours long",
    "make vllm": "3.4 GB from the network; CI has a job for it",
    "pip install": "the network; .ci/release and `make .venv/ready` do it",
    "python examples/three_nights.py": "minutes a seed: a measurement",
    "vllm serve": "a GPU or a vLLM on the CPU; tests/test_vllm.py drives one",
}
MEASURES = re.compile(r"python benchmarks")
"""Measurements of minutes to days, whose figures the pages tell; tests/test_docs.py checks that they are there."""


def commands(text: str) -> Iterator[str]:
    """Yield program and first word of what a page tells to type, in its code or in a line."""
    fenced = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    code = "\n".join(body for kind, body in fenced.findall(text) if kind in ("", "sh", "bash", "console"))
    for line in [*code.replace("\\\n", " ").splitlines(), *re.findall(r"`([^`\n]+)`", fenced.sub("", text))]:
        for part in re.split(r"&&|\|", line):
            words = [word for word in part.split() if word != "-m" and not re.match(r"[A-Z_]+=", word)]
            if len(words) > 1 and words[0] in PROGRAMS and re.match(r"[a-z]", words[1]):
                yield f"{words[0]} {words[1]}"


def test_every_command_of_the_pages_is_run_or_says_what_it_needs() -> None:
    found = {one for page in PAGES for one in commands(page.read_text(encoding="utf-8")) if not MEASURES.match(one)}
    assert found == RUN.keys() | NEEDS.keys()


@pytest.mark.parametrize("command", RUN)
def test_what_runs_a_command_names_it(command: str) -> None:
    word = command.split()[1].rpartition("/")[2].removesuffix(".py").replace("grpo_flat", "_flat")
    assert re.search(rf"\b{re.escape(word)}\b", (ROOT / RUN[command]).read_text(encoding="utf-8"))


def test_commands_are_found_in_a_page() -> None:
    page = """
```python
make = "nothing of a shell"
```
Type `HARR=1 python -m harr.params.schema`:
```
cd there && make run  # as before
```
"""
    assert [*commands(page)] == ["make run", "python harr.params.schema"]
