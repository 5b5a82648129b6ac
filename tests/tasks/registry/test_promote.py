"""The alias champion moves only if all conditions of the gate hold, and by one promotion at a time."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from harr.errors import HarrError, PromotionRefused
from harr.evaluate.summary import summarise
from harr.io.files import digest_of, publish, write_json
from harr.params import Params
from harr.services.model_registry import LOADABLE
from tasks.evaluation_record import rules
from tasks.registry import promote as registry
from tasks.registry.history import champions
from tasks.registry.promote import CHAMPION, PREVIOUS, promote, rollback
from tasks.registry.pull import pull
from tasks.registry.register import CANDIDATE, ROLLED_BACK, register
from tasks.tracking.client import open_client
from tasks.tracking.errors import done_once
from tasks.tracking.run import tracked_run

ROOT = Path(__file__).parents[3]
QUESTIONS = 40
FACTS = {"base_model": "base", "retriever": {"state": "json"}, "history": True, "statuses": True, "towers": "both"}
EXPECTATIONS = {"corpus": 5, "questions": 6, "vectors": 3, "index": 3, "filtered": 4, "evaluation": 4}


@pytest.fixture
def params(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """The smoke recipe, in an empty store."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    here = {"identity": "index-1", "corpus": "c", "rows": 4, "dtype": "float32"}
    write_json(Path("data/vectors/manifest.json"), here)
    return Params.load()


def dump_rules(params: Params, **other: Any) -> str:
    """Return the tag that says how a version is compared."""
    kept = params.tracking.model_dump(mode="json", include={"min_questions"})
    return json.dumps(rules(params) | {"metric": "answer_f1"} | kept | other)


def with_conditions(params: Params, conditions: dict[str, Any]) -> Params:
    """Return parameters whose promotion also calls these functions."""
    return params.model_copy(update={"tracking": params.tracking.model_copy(update={"conditions": conditions})})


def add(params: Params, right: int, *, frozen: int | None = 4, **tags: str) -> str:
    """Register a version that answers the first ``right`` of 40 questions; return its number."""
    tags = {
        "evaluation": "same",
        "index": "index-1",
        "questions": "asked",
        "rules": dump_rules(params),
        "expectations": json.dumps(EXPECTATIONS),
    } | tags
    write_json(Path("work/model/harr.json"), FACTS)
    publish(Path("work/model"), Path("model"))
    Path("rows").mkdir(exist_ok=True)
    arms: dict[str, Any] = {}
    for arm, count in {"trained": right, "frozen": frozen}.items():
        path = Path("rows") / f"{arm}.jsonl"
        path.unlink(missing_ok=True)
        if count is not None:
            rows = [{"id": f"q{i}", "answer_f1": float(i < count)} for i in range(QUESTIONS)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            arms[arm] = [rows]
    figures = summarise(arms, resamples=100, seed=0)
    with tracked_run("merge", params) as run:
        return register(run, params, "retriever", Path("model"), Path("rows"), tags, figures)


def champion(params: Params, alias: str = CHAMPION) -> str:
    """Return the number of the version with the alias."""
    return str(open_client(params).get_model_version_by_alias("harr-smoke", alias).version)


def page_of(params: Params, version: str) -> str:
    """Return promotion.html of a version's run."""
    client = open_client(params)
    run = client.get_model_version("harr-smoke", version).run_id
    return Path(client.download_artifacts(run, "promotion.html")).read_text(encoding="utf-8")


def test_the_first_champion_must_beat_its_own_frozen_arm(params: Params) -> None:
    with pytest.raises(PromotionRefused, match="no candidate"):
        promote(params)
    add(params, right=5)
    with pytest.raises(PromotionRefused, match=r"frozen .* gain: found answer F1 \+2\.5 .* interval that lies above 0"):
        promote(params)
    second = add(params, right=24)
    assert "answer F1 +50.0" in promote(params)
    assert champion(params) == second
    with pytest.raises(PromotionRefused, match="champion already;"):
        promote(params)
    client = open_client(params)
    version = client.get_model_version("harr-smoke", second)
    assert version.tags["kind"] == "retriever" and len(version.tags["environment"]) == 64
    listed = Path(client.download_artifacts(version.run_id, "requirements.txt")).read_text()
    assert listed.startswith("# Python 3.") and "\nmlflow==" in listed
    assert version.source.endswith("/retriever")


@pytest.mark.fault(28)
def test_a_worse_candidate_is_refused_and_a_better_one_can_be_rolled_back(params: Params) -> None:
    first = add(params, right=20)
    promote(params)
    add(params, right=12)
    with pytest.raises(PromotionRefused, match=rf"against champion {first}: gain: found answer F1 -20\.0") as refused:
        promote(params)
    command = next(
        line for line in (ROOT / ".ci/smoke").read_text().splitlines() if "grep" in line and "refusal" in line
    )
    assert command.split('"')[1] in str(refused.value), "the refusal that .ci/smoke accepts"
    assert champion(params) == first
    third = add(params, right=32)
    assert f"against champion {first}: answer F1 +30.0" in promote(params)
    assert champion(params) == third
    fourth = add(params, right=24)
    assert rollback(params) == f"rolled back: champion of harr-smoke is version {first} (was version {third})"
    assert champion(params) == first
    with pytest.raises(PromotionRefused, match="no previous champion"):
        rollback(params)
    assert (champion(params), champion(params, CANDIDATE)) == (first, fourth), "one that came after stays"


@pytest.mark.fault(28)
def test_any_champion_can_be_gone_back_to_and_a_move_by_hand_is_noticed(params: Params) -> None:
    first, second, third = (add(params, right=right) for right in (14, 26, 38))
    client = open_client(params)
    for number in (first, second, third):
        client.set_registered_model_alias("harr-smoke", CANDIDATE, number)
        promote(params)
    assert rollback(params, to=first).startswith(f"rolled back: champion of harr-smoke is version {first}")
    assert champions(client, "harr-smoke") == [first, second, third, first]
    with pytest.raises(PromotionRefused, match=f"7 of harr-smoke was no champion, or is gone; there are {first}"):
        rollback(params, to="7")
    client.set_registered_model_alias("harr-smoke", CHAMPION, third)
    client.set_registered_model_alias("harr-smoke", CANDIDATE, second)
    with pytest.raises(PromotionRefused, match=f"the alias was moved by hand to version {third}, and version {first}"):
        promote(params)
    client.delete_registered_model_alias("harr-smoke", CHAMPION)
    with pytest.raises(
        PromotionRefused, match=rf"version {first} was champion and is none any more.*`harr rollback --to N`"
    ):
        promote(params)
    rollback(params, to=third)
    assert champion(params) == third and champions(client, "harr-smoke")[-2:] == [first, third]
    assert ROLLED_BACK not in client.get_model_version("harr-smoke", third).tags, "it is champion again"
    client.set_registered_model_alias("harr-smoke", PREVIOUS, first)
    with pytest.raises(PromotionRefused, match=f"version {third} of harr-smoke is champion already"):
        rollback(params, to=third)
    assert rollback(params).startswith(f"rolled back: champion of harr-smoke is version {first}"), "the way back stays"


def test_versions_of_another_game_are_not_compared_and_another_corpus_is_named_with_both(params: Params) -> None:
    first = add(params, right=20, corpus="0123456789abcdef", passages="20000")
    promote(params)
    add(params, right=40, evaluation="other", corpus="0123456789abcdef", passages="20000")
    with pytest.raises(PromotionRefused, match="same game: found another, needed the same questions"):
        promote(params)
    add(params, right=40, evaluation="other", corpus="fedcba9876543210", passages="20150")
    message = (
        "played on corpus fedcba98 (20,150 passages), the champion on 01234567 (20,000 passages), needed one corpus"
    )
    with pytest.raises(PromotionRefused, match=re.escape(message)):
        promote(params)
    assert champion(params) == first


def test_missing_rows_or_metrics_are_named(params: Params) -> None:
    add(params, right=20, frozen=None)
    with pytest.raises(PromotionRefused, match=r"no rows of arm frozen; add frozen to evaluate\.arms"):
        promote(params)
    add(params, right=20, rules=dump_rules(params, metric="recall"))
    with pytest.raises(PromotionRefused, match="not measured in recall"):
        promote(params)


def test_a_function_of_another_package_is_asked_as_the_version_was_registered(
    params: Params, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its name must also be in params.yaml: what only the registry names is not run."""
    (tmp_path / "mine_gate.py").write_text(
        "from harr.report.promotion import Condition\n"
        "def ask(client, candidate, gains, *, least):\n"
        "    own = int(candidate.version) if gains['answer_f1']['gain'] == 0.5 else -1\n"
        "    return Condition('mine', str(own), f'version {least}', own >= least) if least else least\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    conditions = {"mine_gate:ask": {"least": 2}}
    for settings, message in (
        ({"least": 2}, "mine: found 1, needed version 2"),
        ({"least": 0}, "mine_gate:ask returned int; it takes MLflow's client"),
        ({}, "cannot be called so"),
    ):
        add(params, right=24, rules=dump_rules(params, conditions={"mine_gate:ask": settings}))
        with pytest.raises(HarrError, match=message):
            promote(with_conditions(params, conditions))
    last = add(params, right=24, rules=dump_rules(params, conditions={"mine_gate:ask": {"least": 1}}))
    with pytest.raises(
        PromotionRefused, match=r"condition: found params\.yaml names no mine_gate:ask, needed mine_gate"
    ):
        promote(params)
    assert "promoted" in promote(with_conditions(params, conditions)) and champion(params) == last


def test_too_few_questions_are_refused_and_a_readable_page_says_so(
    params: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    script, strict = "<script>alert(1)</script>", dump_rules(params, min_questions=100)
    version = add(params, right=24, corpus=script, rules=strict)
    loose = params.model_copy(update={"tracking": params.tracking.model_copy(update={"min_questions": 1})})
    with pytest.raises(PromotionRefused, match=r"questions: found 40, needed at least 100 \(tracking\.min_questions\)"):
        promote(loose)
    shown = capsys.readouterr().out
    assert "NO   questions: 40, needed" in shown and shown.count("yes") == 9 and shown.count("NO") == 1
    assert "does not become champion" in page_of(params, version)
    assert "<script>" not in page_of(params, version) and "&lt;script&gt;" in page_of(params, version)


RACE = """
import os
import harr.evaluate.summary  # before the fork: the slow imports once
from harr.errors import HarrError, PromotionRefused
from harr.params import Params
from harr.services.model_registry import LOADABLE
from mlflow import MlflowClient
from tasks.registry.promote import promote
children = []
for number in range(3):
    if not (child := os.fork()):
        try:
            outcome = promote(Params.load())
        except PromotionRefused as error:
            outcome = f"refused: {error}"
        open(f"outcome-{number}", "w").write(outcome)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.mark.fault(28)
@pytest.mark.services
def test_promotions_at_once_keep_the_previous_champion(params: Params) -> None:
    """Of three processes that promote one candidate, one succeeds; the others find that it is the champion."""
    first = add(params, right=12)
    promote(params)
    second = add(params, right=36)
    subprocess.run([sys.executable, "-c", RACE], check=True, timeout=280)
    outcomes = [Path(f"outcome-{number}").read_text() for number in range(3)]
    assert sorted(line.split(":")[0] for line in outcomes) == ["promoted", "refused", "refused"], outcomes
    assert (champion(params), champion(params, PREVIOUS)) == (second, first)
    assert [model.name for model in open_client(params).search_registered_models()] == ["harr-smoke"]


@pytest.mark.fault(28)
def test_a_promotion_that_took_too_long_moves_nothing_once_another_champion_is_there(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compared with the previous champion; meanwhile its mark was mistaken for a dead process's."""
    first = add(params, right=12)
    promote(params)
    second = add(params, right=24)
    promote(params)
    add(params, right=39)
    compared = registry.judge

    def slow(*given: Any) -> Any:
        monkeypatch.setattr(registry, "LEASE_SECONDS", -1.0)
        rollback(params)
        return compared(*given)

    monkeypatch.setattr(registry, "judge", slow)
    with pytest.raises(PromotionRefused, match="another champion of harr-smoke was made meanwhile; run `harr promote`"):
        promote(params)
    assert champion(params) == first and champions(open_client(params), "harr-smoke") == [first, second, first]


def test_the_mark_of_a_dead_promotion_is_put_aside_an_own_one_taken_and_a_live_one_waited_for(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(params, right=24)
    client = open_client(params)
    client.create_registered_model("harr-smoke.promotion", description="A promotion under way, by host, pid 7")
    monkeypatch.setattr(registry, "WAIT_SECONDS", 0.5)
    with pytest.raises(PromotionRefused, match="by host, pid 7 has harr-smoke"):
        promote(params)
    monkeypatch.setattr(registry, "LEASE_SECONDS", 0.0)
    assert promote(params).startswith("promoted")
    assert [model.name for model in client.search_registered_models()] == ["harr-smoke"]
    broken = registry.lock_promotion(client, "harr-smoke")
    broken.__enter__()  # never left, as if the server went away: the mark stays, and belongs to this process
    monkeypatch.setattr(registry, "LEASE_SECONDS", 600.0)
    with pytest.raises(PromotionRefused, match="no previous champion"):
        rollback(params)
    assert [model.name for model in client.search_registered_models()] == ["harr-smoke"]
    broken.__exit__(None, None, None)
    slow = registry.lock_promotion(client, "harr-smoke")
    slow.__enter__()
    client.delete_registered_model("harr-smoke.promotion")  # another took over after LEASE_SECONDS
    client.create_registered_model("harr-smoke.promotion", description="A promotion under way, by host, pid 7")
    slow.__exit__(None, None, None)
    assert client.get_registered_model("harr-smoke.promotion"), "the mark is the other's"
    registry._release_stale_lock(client, "harr-smoke.promotion", 7)  # whose mark another had put aside before
    assert client.get_registered_model("harr-smoke.promotion"), "a newer mark stays"
    assert [model.name for model in client.search_registered_models()] == ["harr-smoke", "harr-smoke.promotion"]


@pytest.mark.services
def test_a_promotion_that_was_killed_here_keeps_nobody_waiting(params: Params) -> None:
    """Its process is gone: the next promotion neither waits nor is refused, and no mark stays."""
    add(params, right=24)
    code = (
        "import os, time\n"
        "from harr.params import Params\n"
        "from tasks.registry import promote as registry\n"
        "registry.judge = lambda *given: os.kill(os.getpid(), 9)\n"
        "registry.promote(Params.load())\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    client = open_client(params)
    assert client.get_registered_model("harr-smoke.promotion")
    began = time.monotonic()
    assert promote(params).startswith("promoted") and time.monotonic() - began < 30
    assert [model.name for model in client.search_registered_models()] == ["harr-smoke"]


@pytest.mark.services
def test_a_server_on_postgresql_with_its_files_in_s3(
    params: Params, mlflow_server: Any, bucket: Any, postgresql: str
) -> None:
    """Register and promote as a person would; the promotion lock relies on what PostgreSQL makes only once."""
    destination, environment = bucket  # the last occurrence of an option counts
    mlflow_server.command += ["--artifacts-destination", destination, "--backend-store-uri", postgresql]
    mlflow_server.environment |= environment
    mlflow_server.start()
    first = add(params, right=12)
    assert promote(params).startswith(f"promoted: version {first}")
    second = add(params, right=36)
    assert f"against champion {first}: answer F1 +60.0" in promote(params)
    assert (champion(params), champion(params, PREVIOUS)) == (second, first)
    assert "all 10 conditions hold" in page_of(params, second)
    assert pull("models:/harr-smoke@champion", Path("pulled")).startswith(f"pulled version {second} of harr-smoke")
    assert digest_of(Path("pulled")) == digest_of(Path("model"))
    assert rollback(params).startswith(f"rolled back: champion of harr-smoke is version {first}")
    client = open_client(params)
    assert client.get_model_version("harr-smoke", second).source.startswith("mlflow-artifacts:/")
    with urllib.request.urlopen(f"{environment['MLFLOW_S3_ENDPOINT_URL']}/models?list-type=2", timeout=30) as answer:
        kept = answer.read().decode()
    for path in (f"retriever/{LOADABLE}/harr.json", "evaluation/trained.jsonl", "promotion.html", "requirements.txt"):
        assert f"/{path}</Key>" in kept
    assert [model.name for model in client.search_registered_models()] == ["harr-smoke"]
    client.create_registered_model("harr-smoke.promotion")
    assert not done_once(client.create_registered_model, "harr-smoke.promotion")
