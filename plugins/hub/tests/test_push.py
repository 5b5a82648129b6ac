"""`harr push` with the hub's own client against a stand-in of the hub on loopback."""

import base64
import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import close_session, constants
from serving import running, send_json

from harr.io.files import check_sums, publish
from harr.params import Params
from tasks.merge import training_facts

# huggingface_hub 2.4 gives its client the bytes of large files by an old name
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TOKEN = "hf_avery$ecrettoken"
BOTH = ("--dataset", "ada/questions", "--model", "ada/retriever")
LARGE = b"weights" * 1000


class Hub:
    """A hub: what it was asked, with which tokens, and the files of every repository."""

    def __init__(self, refusal: int, public: bool) -> None:
        self.refusal, self.public = refusal, public
        self.address = ""
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()
        self.created: list[dict[str, Any]] = []
        self.large: dict[str, bytes] = {}
        self.files: dict[str, dict[str, bytes]] = {}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON for one request; safetensors are large files, the rest is in the commit."""
        if method == "PUT":
            self.large[path.rsplit("/", 1)[-1]] = body
            return 200, {}
        if self.refusal:
            return self.refusal, {"error": f"no, {TOKEN}"}
        if path == "/api/repos/create":
            self.created.append(json.loads(body))
            prefix = "datasets/" if self.created[-1]["type"] == "dataset" else ""
            return 200, {"url": f"{self.address}/{prefix}ada/{self.created[-1]['name']}"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path.endswith("/preupload/main"):
            files = [file["path"] for file in json.loads(body)["files"]]
            modes = ["lfs" if file.endswith(".safetensors") else "regular" for file in files]
            pairs = zip(files, modes, strict=True)
            return 200, {"files": [{"path": file, "uploadMode": mode, "shouldIgnore": False} for file, mode in pairs]}
        if path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for part in objects:
                part["actions"] = {"upload": {"href": f"{self.address}/large/{part['oid']}"}}
            return 200, {"transfer": "basic", "objects": objects}
        if path.endswith("/commit/main"):
            repository = path.removeprefix("/api/").removesuffix("/commit/main")
            self.files[repository] = self.committed([json.loads(line) for line in body.splitlines()])
            return 200, {"commitUrl": f"{self.address}/{repository.removeprefix('models/')}/commit/1", "commitOid": "1"}
        return 200, {"id": "ada/x", "private": not self.public}

    def committed(self, lines: list[dict[str, Any]]) -> dict[str, bytes]:
        """The files of a commit; a large one must have arrived whole before."""
        small = {one["value"]["path"]: one["value"]["content"] for one in lines if one["key"] == "file"}
        large = {one["value"]["path"]: one["value"]["oid"] for one in lines if one["key"] == "lfsFile"}
        assert all(hashlib.sha256(self.large[digest]).hexdigest() == digest for digest in large.values())
        read = {name: base64.b64decode(content) for name, content in small.items()}
        return read | {name: self.large[digest] for name, digest in large.items()}


@contextmanager
def serving(*, refusal: int = 0, public: bool = False) -> Iterator[Hub]:
    """A hub on a free port; it may answer every request with one refusal, and hold public repositories only."""
    hub = Hub(refusal, public)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            path = self.path.split("?")[0]
            hub.asked.append(f"{self.command} {path}")
            if not path.startswith("/large/"):
                hub.tokens.add(self.headers["Authorization"])
            send_json(self, *hub.answer(self.command, path, body))

        do_GET = do_POST = do_PUT = reply

        def log_message(self, *_: object) -> None: ...

    with running(Handler) as address:
        hub.address = address
        yield hub


@pytest.fixture
def finished(workplace: Path) -> Path:
    """A place where the pipeline has run: filtered questions, a merged model, and metrics."""
    metric = {"mean": 0.98, "low": 0.97, "high": 0.99, "n": 400, "seeds": []}
    gain = {"gain": 0.686, "low": 0.642, "high": 0.731, "p": 0.0002, "n": 400, "seeds": [0.69, 0.703, 0.665]}
    trained = metric | {"seeds": [0.985, 0.998, 0.96]}
    summary = {
        "arms": {"frozen": {"answer_f1": metric | {"mean": 0.295}}, "trained": {"answer_f1": trained}},
        "paired": {"trained": {"answer_f1": gain}},
    }
    written = {
        "data/filtered/questions.jsonl": '{"id": "q1"}\n',
        "data/filtered/statistics.jsonl": '{"id": "q1", "reason": "rollouts disagree", "kept": true}\n'
        '{"id": "q2", "reason": "all wrong", "kept": false}\n',
        "models/retriever/harr.json": json.dumps({"base": "b1", "base_model": "Qwen/Qwen3-Embedding-0.6B"}),
        "models/retriever/README.md": "the card of stage merge",
        "models/retriever/1_Pooling/config.json": "{}",
        "metrics/evaluate.json": json.dumps(summary),
        "metrics/contrasts.json": json.dumps({"trained-infonce": {"answer_f1": gain}}),
    }
    for name, text in written.items():
        path = workplace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (workplace / "models/retriever/model.safetensors").write_bytes(LARGE)
    return workplace


Pushed = subprocess.CompletedProcess[str]
Push = Callable[..., Pushed]


@pytest.fixture
def push(monkeypatch: pytest.MonkeyPatch, harr: Push) -> Push:
    """`harr push` with a token, online, against ``address``; nothing prints the token."""

    def run(*words: str, address: str = "http://127.0.0.1:9", token: str = TOKEN, offline: bool = False) -> Pushed:
        for name, value in (("ENDPOINT", address), ("HF_HUB_OFFLINE", offline), ("HF_HUB_DISABLE_XET", True)):
            monkeypatch.setattr(constants, name, value)
        try:
            done = harr("push", *words, HF_TOKEN=token)
        finally:
            close_session()
        assert TOKEN not in done.stdout + done.stderr
        return done

    return run


def in_a_line(done: Pushed, line: str) -> bool:
    """Whether the command failed with one line that begins so."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    return done.stderr.startswith(f"error: {line}")


def test_everything_arrives_as_the_dry_run_said(finished: Path, push: Push) -> None:
    with serving() as hub:
        said = push(*BOTH, "--private", "--license", "mit", "--dry-run", address=hub.address, token="", offline=True)
        assert hub.asked == []
        assert in_a_line(push(*BOTH, address=hub.address, offline=True), "HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) for")
        assert hub.asked == []
        done = push(*BOTH, "--private", "--license", "mit", address=hub.address)
    assert (said.returncode, said.stderr, done.returncode) == (0, "", 0), said.stderr + done.stderr
    assert hub.tokens == {f"Bearer {TOKEN}"}
    created = [(repo["name"], repo["visibility"]) for repo in hub.created]
    assert created == [("questions", "private"), ("retriever", "private")]
    listed = set(re.findall(r"^  (\S+) +([\d,]+) bytes  sha256 (\w{64})$", said.stdout, re.MULTILINE))
    sent = {name: content for files in hub.files.values() for name, content in files.items() if name != "README.md"}
    cards = [files["README.md"] for files in hub.files.values()]
    pairs = [*sent.items(), *(("README.md", card) for card in cards)]
    assert listed == {(name, f"{len(c):,}", hashlib.sha256(c).hexdigest()) for name, c in pairs}
    model = ["1_Pooling/config.json", "harr.json", "model.safetensors", "sha256sums.txt"]
    assert sorted(sent) == sorted([*model, "questions.jsonl", "statistics.jsonl"])
    assert sent["model.safetensors"] == LARGE
    assert all(card.decode() in said.stdout for card in cards)
    assert "pushed dataset ada/questions: " in done.stdout and "pushed model ada/retriever: " in done.stdout


def test_no_path_of_this_machine_is_sent_also_where_data_set_and_model_share_a_name(finished: Path, push: Push) -> None:
    retriever = finished / "models/retriever"
    (retriever / "action").mkdir()
    for folder in (retriever, retriever / "action"):  # as stage merge leaves two towers
        (folder / "harr.json").write_text(json.dumps({"base": "b1", "base_model": "/home/ada/models/mine"}))
        (folder / "README.md").write_text("built with its base model, /home/ada/models/mine")
    with serving() as hub:
        done = push("--dataset", "ada/harr", "--model", "ada/harr", address=hub.address)
    assert done.returncode == 0, done.stderr
    questions, sent = hub.files["datasets/ada/harr"], hub.files["models/ada/harr"]
    assert sorted(questions) == ["README.md", "questions.jsonl", "statistics.jsonl"]
    own = ["1_Pooling/config.json", "README.md", "harr.json", "model.safetensors", "sha256sums.txt"]
    assert sorted(name for name in sent if not name.startswith("action/")) == own
    assert not [name for name, content in sent.items() if b"/home/ada" in content]
    for name in ("harr.json", "action/harr.json"):
        assert json.loads(sent[name]) == {"base": "b1", "base_model": "mine"}


def test_a_downloaded_model_fits_its_hashes(finished: Path, push: Push) -> None:
    retriever, downloaded = finished / "models/retriever", finished / "downloaded"
    publish(retriever.rename(finished / "merged"), retriever)
    with serving() as hub:
        done = push("--model", "ada/retriever", address=hub.address)
    assert done.returncode == 0, done.stderr
    for name, content in hub.files["models/ada/retriever"].items():
        (downloaded / name).parent.mkdir(parents=True, exist_ok=True)
        (downloaded / name).write_bytes(content)
    check_sums(downloaded, "fetch it again", "README.md", "harr.json", "model.safetensors")
    check_sums(downloaded, "fetch it again")


def test_the_cards_say_what_is_known(finished: Path, push: Push) -> None:
    text = push(*BOTH, "--dry-run").stdout
    assert "license:" not in text and "base_model: Qwen/Qwen3-Embedding-0.6B\n" in text
    assert "the 1 kept questions" in text and "all 2 questions that were tried" in text
    assert "because sampled rollouts" in text
    assert "| trained | 3: 96.0 to 99.8 | 400 | 98.0 [97.0, 99.0] | +68.6 [+64.2, +73.1] | 0.0002 |" in text
    assert "| frozen |  | 400 | 29.5 [97.0, 99.0] |" in text
    assert "- `trained` over `infonce`: +68.6 [+64.2, +73.1], p 0.0002, n 400" in text
    assert "the card of stage merge" not in text
    rows = [{"id": name, "kept": True, "reason": "all are kept"} for name in ("q1", "q2")]
    (finished / "data/filtered/statistics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = push("--dataset", "ada/questions", "--dry-run").stdout
    assert "as they are; none was played" in text and "| all are kept | 2 |" in text
    assert not [word for word in ("rollouts", "from easy to hard", "reward_mean") if word in text]


def test_a_refusal_is_one_line(finished: Path, push: Push) -> None:
    for status, line in {
        401: "the token in HF_TOKEN is not accepted",
        403: "may not write there; give it write access to ada",
        404: "not found; check owner and name",
        500: "push again later",
    }.items():
        with serving(refusal=status) as hub:
            done = push("--dataset", "ada/questions", address=hub.address)
        assert in_a_line(done, f"dataset ada/questions: HTTP {status} from {hub.address}") and line in done.stderr


def test_a_language_model_is_pushed_in_place_of_a_retriever_that_was_not_trained(finished: Path, push: Push) -> None:
    (finished / "models/retriever/untrained.json").write_text("{}")
    assert in_a_line(push("--model", "ada/writer", "--dry-run"), "models/language_model/harr.json is missing")
    (finished / "models/language_model").mkdir()
    facts = {"base_model": "/home/ada/models/Writer-1B", "kind": "language_model", "index_identity": "i1"}
    (finished / "models/language_model/harr.json").write_text(json.dumps(facts))
    assert "does not say how it was trained" in push("--model", "ada/writer", "--dry-run").stderr
    (finished / "models/language_model/README.md").write_text("its base is /home/ada/models/Writer-1B")
    (finished / "models/language_model/model.safetensors").write_bytes(LARGE)
    params = yaml.safe_load((finished / "recipes/agent_small.yaml").read_text())
    judge = {"kind": "server", "server": {"urls": ["http://judge.local/v1"]}, "model": "grader"}
    weights = [{"weight": 0.2, "end": 30}, {"weight": 0.5, "start": 30}]
    params["reward"] = {"terms": {"semantic": weights, "format": 0.25}, "judge": judge}
    trained = training_facts(Params.model_validate(params))  # params.yaml is that of another training by now
    (finished / "models/language_model/harr.json").write_text(json.dumps(facts | {"training": trained}))
    with serving() as hub:
        done = push("--model", "ada/writer", "--private", "--license", "mit", address=hub.address)
    assert done.returncode == 0, done.stderr
    sent = hub.files["models/ada/writer"]
    assert sorted(sent) == ["README.md", "harr.json", "model.safetensors", "sha256sums.txt"]
    assert sent["model.safetensors"] == LARGE
    assert not [name for name, content in sent.items() if b"/home/ada" in content or b"judge.local" in content]
    card = sent["README.md"].decode()
    for line in (
        "Its base is Writer-1B.",
        "| method | agent (GRPO by TRL, loss dapo) |",
        "| rewards | semantic: 0.2 (steps 0 to 29), 0.5 (from step 30); format: 0.25 |",
        "| judge | grader |",
        "| answer F1 | 98.0 [97.0, 99.0] | 400 |",
    ):
        assert line in card, card


def test_a_public_repository_is_not_taken_for_a_private_one(finished: Path, push: Push) -> None:
    with serving(public=True) as hub:
        done = push("--dataset", "ada/questions", "--private", address=hub.address)
    assert done.returncode == 1 and "exists and is public; nothing was sent" in done.stderr
    assert not any("commit" in path or "preupload" in path for path in hub.asked)


def test_what_cannot_be_pushed_is_one_line(finished: Path, push: Push) -> None:
    assert in_a_line(push("--model", "ada/retriever"), "model ada/retriever: no answer from http://127.0.0.1:9 (")
    assert in_a_line(push(*BOTH, token=" "), "the environment variable HF_TOKEN is not set")
    wrong = push("--model", "retriever", "--dry-run")
    assert in_a_line(wrong, "") and "repository 'retriever': expected OWNER/NAME" in wrong.stderr
    for missing in ("models/retriever/harr.json", "data/filtered/questions.jsonl"):
        (finished / missing).rename(finished / "away")
        assert in_a_line(push(*BOTH), f"{missing} is missing")
        (finished / "away").rename(finished / missing)
