"""`harr explain` after a small training: what it reads, what it measures, and what it says."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from harr_diagnose.causes import Facts
from harr_diagnose.explain import START, gather_facts, read_runs

from benchmarks.planted import READS, Project, train_project
from harr.io.files import read_json, write_json
from harr.params import Params
from tasks.evaluation_outputs import summary_here
from tasks.paths import ADAPTER, EVALUATION, STATS

SHORT = READS | {"train": {"warm_start": 4, "steps": 2}}


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose test questions are training questions with a word more, in which all tests of this file stand."""
    folder = tmp_path_factory.mktemp("leaking")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train_project(Project("leak", leaks=True, params=SHORT))
        yield folder


@pytest.fixture
def changed(leaking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that a test may change."""
    shutil.copytree(leaking, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts() -> Facts:
    return gather_facts(Params.load(), summary_here(), None)


def test_a_planted_leak_is_named(leaking: Path, harr: Callable[..., CompletedProcess[str]]) -> None:
    done = harr("explain", "--out", "out/explanation.json")
    assert done.returncode == 0, done.stderr
    outcome, leak, *_, unknown = done.stdout.splitlines()
    assert outcome.startswith("trained ") and outcome.endswith(" points of answer F1 on 80 questions")
    assert leak.startswith("leak: 80 of 80 test questions are, or nearly are, a training question; set download.near")
    assert unknown == "not measured here: too few steps"
    written = read_json(Path("out/explanation.json"))
    assert written["outcome"] == outcome and next(row["cause"] for row in written["causes"] if row["named"]) == "leak"
    known = written["facts"]
    assert known["start"] == {"gain": 0.0, "low": 0.0, "high": 0.0, "n": 80}, "the first pick has no history"
    assert known["train"] == 120 and known["leaked"] == 80 and known["searched"] == 100 and known["validated"] == 40
    assert len(known["validation"]) == 3 and len(known["rewards"]) == 2, "of both; and of steps by reward alone"
    assert known["mislabelled"] == 0.0 and 0 < known["pool_recall"] < 1 and 0 < known["cosine"] < 0.9999
    assert known["reader"] == {"from_memory": 0.0, "with_gold": 1.0, "n": 100.0}
    assert known["general"]["n"] == 240 and known["general"]["before"] > 0.9 and abs(known["general"]["gain"]) < 0.05


def test_an_untrained_adapter_is_a_training_that_moved_nothing(changed: Path) -> None:
    from harr.embed.encoder import Encoder
    from harr.rag.policies.encoder_adapter import save_adapter, unfreeze

    shutil.rmtree(ADAPTER)
    encoder = Encoder("static", max_tokens=64)
    save_adapter(unfreeze(encoder), encoder, ADAPTER)
    figures = facts()
    assert figures.cosine == pytest.approx(1.0) and figures.general["gain"] == 0.0


def test_what_the_stages_wrote_is_read(changed: Path) -> None:
    rows = [{"step": n, "reward_mean": n / 10, "zero_std_share": 0.9 + n / 100, "phase": 0.0} for n in range(5)]
    STATS.write_text("".join(f"{json.dumps(row)}\n" for row in [rows[0] | {"phase": -1.0}, *rows]))
    for arm, share in (("nothing", 0.25), ("gold", 0.75)):
        answers = [{"id": f"q{n}", "answer_f1": float(n < 80 * share)} for n in range(80)]
        (EVALUATION / f"{arm}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in answers))
    (EVALUATION / "trained-1.jsonl").write_bytes((EVALUATION / "trained.jsonl").read_bytes())
    assert len(read_runs("trained")) == 2 and len(read_runs("frozen")) == 1
    figures = facts()
    assert figures.rewards == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4]) and figures.validation == []
    assert figures.equal_rewards == pytest.approx(0.92)
    assert figures.reader == {"from_memory": 0.25, "with_gold": 0.5, "n": 80.0}


def test_questions_of_the_users_own_are_the_general_ones(
    changed: Path, harr: Callable[..., CompletedProcess[str]]
) -> None:
    rows = [{"id": f"q{n}", "question": "Which shop sells this?", "supporting": [f"p{n}-0"]} for n in range(3)]
    Path("general.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert harr("explain", "--general", "general.jsonl").returncode == 0
    assert read_json(Path("explanation.json"))["facts"]["general"]["n"] == 3
    Path("general.jsonl").write_text(json.dumps({"id": "q", "question": "Who?", "answers": ["Ada"]}))
    done = harr("explain", "--general", "general.jsonl")
    line = "error: --general general.jsonl: 1 questions (first: q) have no gold passages; name in supporting what each "
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(line)


def test_another_evaluation_than_that_of_the_model_here_is_refused(
    changed: Path, harr: Callable[..., CompletedProcess[str]]
) -> None:
    settings = read_json(Path("params.yaml"))
    write_json(Path("params.yaml"), settings | {"seed": 5})
    done = harr("explain")
    assert done.returncode == 1 and "was played with another state of the parameters of the game" in done.stderr
    settings["evaluate"]["arms"] = [START, "trained"]
    write_json(Path("params.yaml"), settings)
    with pytest.raises(ValueError, match="arm frozen was not played, which `trained` was before; add it to evaluate"):
        facts()
