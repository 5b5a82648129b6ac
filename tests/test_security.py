"""No pickle, no foreign code, no secret on disk, no text that acts, no request to other machines."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from encyclopaedia import encyclopaedia
from indexed import index_world
from serving import chat, serving
from texts import ROOT, Found, faults, name, nodes, python

from harr.builders.setup import open_setup
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.datasets.local import passage_of
from harr.errors import HarrError, ModelError
from harr.filter import filter_questions
from harr.index.build import build_index
from harr.io.jsonl import read_rows
from harr.io.model_folder import check_loadable, check_publishable
from harr.params import Params
from harr.services import milvus_client
from tasks.paths import CORPUS, PLACES, QUESTIONS, VECTORS

PEERS = {ROOT / "benchmarks/peers/harr_code.py"}
"""Files that exist to run a peer's code, in a folder that the user names."""
CODE = python("harr", "tasks", "flows", "benchmarks", "plugins")
FILES = [path for path in CODE if path not in PEERS and path.parent.name != "tests"]
FORBIDDEN = {"pickle", "cPickle", "_pickle", "joblib", "dill", "cloudpickle", "shelve", "marshal", "jsonpickle"}
NEEDS = {
    "torch.load": ("weights_only", True),
    "numpy.load": ("allow_pickle", False),
    "np.load": ("allow_pickle", False),
    "np.save": ("allow_pickle", False),
    "AutoTokenizer.from_pretrained": ("local_files_only", True),
    "SentenceTransformer": ("local_files_only", True),
    "Environment": ("autoescape", True),
}
"""Calls, and the argument without which they may run or fetch what a file names."""


def dangers(source: str) -> Found:
    """Find what in a file may run code that came as data."""
    for node in nodes(source):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from ((node.lineno, f"imports {one}") for one in modules if one.partition(".")[0] in FORBIDDEN)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
        opened = any(word.arg is None for word in node.keywords)  # **options are checked where they are made
        if called in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"):
            yield node.lineno, f"calls {called}"
        if called in NEEDS and not opened and given.get(NEEDS[called][0]) is not NEEDS[called][1]:
            yield node.lineno, f"calls {called} without {NEEDS[called][0]}={NEEDS[called][1]}"
        if called in ("yaml.load", "yaml.unsafe_load", "yaml.full_load") and "safe" not in ast.unparse(node).lower():
            loader = next((word.value for word in node.keywords if word.arg == "Loader"), None)
            if loader is None or ast.unparse(loader) != "loader" or "SafeLoader" not in source:
                yield node.lineno, f"calls {called} without a safe loader"
        if given.get("trust_remote_code") or given.get("shell") or given.get("allow_pickle"):
            yield node.lineno, f"calls {called} with trust_remote_code, shell or allow_pickle"


def test_nothing_runs_what_came_as_data() -> None:
    found = faults(FILES, dangers)
    assert not found, "\n".join(found)


def test_the_check_finds_what_it_looks_for() -> None:
    for line in (
        *("import pickle", "from joblib import load", "import torch; torch.load('x')", "eval('1')", "exec('1')"),
        *("torch.load('x', weights_only=False)", "yaml.load(text)", "yaml.load(text, Loader=yaml.Loader)"),
        *("Environment(loader=loader)", "os.system('x')", "np.save('x', x)", "AutoTokenizer.from_pretrained('x')"),
        *("np.load('x')", "AutoModel.from_pretrained('x', trust_remote_code=True)", "subprocess.run('x', shell=True)"),
    ):
        assert [number for number, _ in dangers(f"\n{line}")] == [2], line
    assert not [*dangers("torch.load('x', weights_only=True)\nyaml.safe_load(text)\nnp.load('x', allow_pickle=False)")]


def small_world(tiny: str, **sections: dict[str, Any]) -> None:
    """Make params.yaml that of a small world for the tiny encoder."""
    values = yaml.safe_load(Path("params.yaml").read_text())
    sections = {"download": encyclopaedia(passages=200, train_questions=12, test_questions=8), **sections}
    for section, changes in (sections | {"encoder": {"model": tiny, "max_tokens": 64}}).items():
        values[section] |= changes
    Path("params.yaml").write_text(yaml.safe_dump(values))


PIPELINE = """
import json, sys

events = []
def watch(event, values):
    if event in ("pickle.find_class", "os.system", "urllib.Request"):
        events.append([event, str(values)[:200]])
    if event == "socket.connect" and isinstance(values[1], tuple) and values[1][0] not in ("127.0.0.1", "::1"):
        events.append([event, str(values[1])])
    if event == "socket.getaddrinfo" and values[0] not in (None, "localhost", "127.0.0.1", "::1", b"localhost"):
        events.append([event, str(values[:2])])

sys.path.append(sys.argv[1])  # what libraries do while they are imported is theirs
import indexed, tasks.evaluate, tasks.merge, tasks.play, tasks.report
from pathlib import Path
from harr.builders.methods import METHODS
from harr.builders.setup import open_setup
from harr.corpus.passages import read_questions
from harr.filter import filter_questions
from harr.io.files import write_text
from harr.params import Params
from tasks.paths import PLACES

sys.addaudithook(watch)
params, data = Params.load(), Path("data")
silent = lambda step, values: None
indexed.index_world(params)
with open_setup(params, PLACES, data / "questions/train.jsonl") as setup:
    filter_questions(params.filter, setup, data / "filtered", Path("work/filter"), silent, 0)
with open_setup(params, PLACES, data / "filtered/questions.jsonl") as setup:
    steps = METHODS["grpo"].train(params.train, setup, Path("models/adapter"), Path("work/train"), silent, 0)
write_text(Path("metrics/training_stats.jsonl"), "".join(json.dumps(step) + "\\n" for step in steps))
stage = tasks.evaluate
rows, episodes = tasks.play.play_arms(params, read_questions(data / "questions/test.jsonl"), silent, model=None)
summary = stage.summarise_arms(params, rows)
stage.write_evaluation(params, rows, episodes, summary)
write_text(Path("metrics/filter.json"), '{"kept": 4, "tried": 12}')
tasks.report.draw_report(params)
tasks.merge.merge_adapter(params)
found = list(events)
import pickle  # the watch is awake
pickle.loads(pickle.dumps(Path))
print(json.dumps([found, len(events) - len(found)]))
"""


@pytest.mark.fault(32)
@pytest.mark.services
def test_a_whole_pipeline_reads_no_pickle_and_asks_no_other_machine(workplace: Path, tiny: str) -> None:
    """Under Python's audit hook: no pickle looks up a class, no shell starts a command, no host is asked."""
    small_world(
        tiny,
        filter={"target": 4, "batch_size": 12},
        train={"steps": 1, "questions_per_step": 2},
        evaluate={"arms": ["bm25", "frozen", "trained"], "resamples": 50},
    )
    command = [sys.executable, "-c", PIPELINE, str(ROOT / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[], 1]
    assert Path("models/adapter/adapter_model.safetensors").exists() and Path("reports/index.html").exists()
    assert Path("models/retriever/query/model.safetensors").exists()
    kinds = {path.suffix for path in Path("models").rglob("*") if path.is_file()}
    assert kinds <= {".safetensors", ".json", ".txt", ".md"}


@pytest.mark.fault(27)
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modeling_x.py", "print()", "holds code (modeling_x.py), which is never run; use a model without"),
        ("part/native.so", "x", "holds code (part/native.so), which is never run"),
        (
            "part/pytorch_model.bin",
            "x",
            "part/pytorch_model.bin is a pickle, which can run code; save the model as safetensors",
        ),
        ("part/training_args.pt", "x", "part/training_args.pt is a pickle, which can run code"),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": "../../other/model.safetensors"}}',
            "names '../../other/model.safetensors', which is outside its folder; use a whole model",
        ),
        ("model.safetensors.index.json", "{", "is no index of shards"),
        (
            "a.safetensors",
            "version https://git-lfs.github.com/spec/v1\n",
            "a pointer of Git LFS in place of the file; run `git",
        ),
    ],
)
def test_a_model_folder_that_is_not_only_weights_is_refused(
    tmp_path: Path, file: str, content: str, message: str
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    check_loadable(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)
    with pytest.raises(ModelError) as refused:
        check_loadable(tmp_path)
    assert message in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.fault(27)
def test_a_pipe_in_a_model_folder_is_refused_before_anybody_reads_it(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "gone.json").symlink_to("nowhere")
    check_loadable(tmp_path)
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"config\.json is no file, and reading it may never end; remove it"):
        check_loadable(tmp_path)


@pytest.mark.fault(27)
@pytest.mark.parametrize("file", ["weights.bin", "notes.html", "run", "model.pt", "sub/x.py"])
def test_a_model_with_a_file_of_another_kind_is_not_registered(tmp_path: Path, file: str) -> None:
    for fine in ("model.safetensors", "config.json", "vocab.txt", "README.md"):
        (tmp_path / fine).write_text("{}")
    check_publishable(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("x")
    with pytest.raises(
        ModelError, match=r"is a file of another kind; a registered model holds .* nothing was registered"
    ):
        check_publishable(tmp_path)
    (tmp_path / file).unlink()
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    with pytest.raises(ModelError, match="is a link"):
        check_publishable(tmp_path)


def test_templates_take_nothing_as_markup_but_our_own_figures() -> None:
    for path in (path for top in ("harr", "plugins") for path in (ROOT / top).rglob("*.j2")):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"[^'\"\s]\s*\|\s*safe\b", text), f"{path.name}: only words of its own are markup"
    makers = {name(path) for path in FILES if "Markup(" in path.read_text(encoding="utf-8")}
    drawn, own, data = "plots", "page", "html"  # figures; the page's own style and script; JSON without < > &
    assert makers <= {f"harr/report/{module}.py" for module in (drawn, "charts", own, data)}


def test_a_text_of_a_corpus_does_not_act_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"id": "p1", "text": "Bath\x1b[2J\x07 \x9b31m is\x00 a\ttown"}))
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert passage_of(row).text == "Bath [2J 31m is a town"


SECRETS = {
    name: f"s3cr3t-{name.lower()}-4711"
    for name in (
        *("OPENAI_API_KEY", "MILVUS_TOKEN", "EXA_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING"),
    )
}


def scan(folder: Path, secrets: dict[str, str]) -> list[str]:
    """Return files under ``folder`` that contain a secret's value."""
    values = [value.encode() for value in secrets.values()]
    own = (path for path in folder.rglob("*") if path.is_file() and not any(p.is_symlink() for p in path.parents))
    return [str(path) for path in own if any(value in path.read_bytes() for value in values)]


@pytest.mark.fault(30)
@pytest.mark.services
def test_a_secret_reaches_no_file_and_no_line(stored: Path) -> None:
    """None of ten keys in the environment is on disk or printed after a stage, its status and `harr doctor`."""
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["download"] = encyclopaedia(passages=200, train_questions=8, test_questions=8)
    values["encoder"] |= {"server": {"urls": ["http://127.0.0.1:9/v1"]}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    known = {**os.environ, **SECRETS, "PREFECT_API_URL": "http://127.0.0.1:9/api", "HARR_EXECUTION": "one"}
    output = ""
    for words, code in (("tasks.inputs", 0), ("tasks.download", 0), ("flows.cli status", 0), ("flows.cli doctor", 1)):
        command = [sys.executable, "-m", *words.split()]
        done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        output += done.stdout + done.stderr
    assert Path("data/corpus/manifest.json").exists() and (stored / "mlflow.db").exists()
    assert not [name for name, value in SECRETS.items() if value in output]
    assert scan(stored, SECRETS) == []
    (stored / "work").mkdir(exist_ok=True)
    (stored / "work/leak.json").write_text(SECRETS["HF_TOKEN"])
    assert scan(stored, SECRETS) == [str(stored / "work/leak.json")], "the scan finds what there is"


@pytest.mark.fault(30)
def test_a_stage_that_uses_a_key_and_a_token_writes_and_prints_neither(
    workplace: Path, tiny: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Filter plays with a server that demands a key and then quotes it in a refusal; Milvus gets a token."""
    key, said = f"Bearer {SECRETS['OPENAI_API_KEY']}", f"Incorrect API key: {SECRETS['OPENAI_API_KEY']}"

    def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
        first = body["messages"] not in [known["messages"] for known in served.bodies[: number - 1]]
        return (
            (200, chat('{"action": "ASK", "sub_query": "Bath"}'))
            if served.keys == {key} and first
            else (401, {"error": {"message": said}})
        )

    for secret, value in SECRETS.items():
        monkeypatch.setenv(secret, value)
    monkeypatch.setattr(milvus_client, "FIRST_SECONDS", 0.2)
    small_world(
        tiny,
        download=encyclopaedia(passages=200, train_questions=4, test_questions=4),
        filter={"target": 2, "batch_size": 2, "group_size": 2},
    )
    with serving(reply) as served:
        generator = {"kind": "server", "model": "small", "server": {"urls": [served.base_url]}}
        Path("params.yaml").write_text(
            yaml.safe_dump(yaml.safe_load(Path("params.yaml").read_text()) | {"generator": generator})
        )
        params, questions = Params.load(), QUESTIONS / "train.jsonl"
        index_world(params)
        with open_setup(params, PLACES, questions) as setup:
            with pytest.raises(HarrError, match="filter kept none") as empty:  # it asks, but no answer is right
                filter_questions(params.filter, setup, Path("data/filtered"), Path("work/filter"), print, 0)
            usage = str(setup.generator.usage())
        Path("work/completions").rename("work/completions-answered")
        with (
            open_setup(params, PLACES, Path("data/questions/train.jsonl")) as setup,
            pytest.raises(HarrError) as refused,
        ):
            filter_questions(params.filter, setup, Path("data/refused"), Path("work/refused"), print, 0)
    assert served.keys == {key} and len(served.bodies) > 8
    assert "HTTP 401 (Error code: 401 - Incorrect API key: ***); set the environment variable OPENAI_API_KEY" in str(
        refused.value
    )
    away = params.index.model_copy(update={"uri": "http://127.0.0.1:9"})
    with pytest.raises(
        HarrError, match=r"no Milvus at http://127\.0\.0\.1:9 within 0 s.*the token in \$MILVUS_TOKEN"
    ) as off:
        build_index(Passages.open(CORPUS), Vectors.open(VECTORS), away, Path("data/away"), Path("work/away"))
    assert "no Milvus at http://127.0.0.1:9 within 0 s" in str(off.value) and "the token in $MILVUS_TOKEN" in str(
        off.value
    )
    output = "".join(capfd.readouterr()) + f"{usage} {empty.value} {refused.value} {off.value}"
    assert list(Path("work/completions-answered").iterdir())
    assert not [name for name, value in SECRETS.items() if value in output]
    assert scan(workplace, SECRETS) == []


def test_servers_listen_on_loopback() -> None:
    hosts = set()
    for path in [*python("flows"), *python("plugins/local")]:
        for node in nodes(path.read_text(encoding="utf-8")):
            for first, second in pairwise(node.elts if isinstance(node, ast.List | ast.Tuple) else []):
                if getattr(first, "value", None) in ("--host", "-H", "--listen"):
                    hosts.add(getattr(second, "value", ast.unparse(second)))
    assert hosts == {"127.0.0.1"}
    assert not [name(path) for path in FILES if '"0.0.0.0"' in path.read_text(encoding="utf-8")]
