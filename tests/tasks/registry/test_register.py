"""A version is loadable, carries its figures, and is made once; ``candidate`` names the model in models/."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

from harr.errors import CorpusError, DamagedFile, HarrError, ParamsError, PromotionRefused, StaleState
from harr.evaluate.summary import summarise
from harr.io.files import digest_of, publish, read_json, write_json
from harr.params import Params
from harr.services.model_registry import LOADABLE, resolve
from tasks.evaluation_record import FIGURES, content_of, figures, record_game
from tasks.inputs.stages import parameters
from tasks.merge import register_model
from tasks.registry.candidate import has_model, keep_candidate
from tasks.registry.promote import CHAMPION, promote, rollback
from tasks.registry.pull import pull
from tasks.registry.register import CANDIDATE, ROLLED_BACK
from tasks.tracking.client import open_client
from tasks.tracking.errors import Refused
from tasks.tracking.run import tracked_run

NAME = "harr-smoke"
FACTS = {"base_model": "/data/models/base", "retriever": {"state": "lines"}, "history": True, "statuses": True}
SUITES = {
    "download": {"expected_corpus": 5.0, "expected_questions": 6.0},
    "embed": {"expected_vectors": 3.0},
    "index": {"expected_index": 3.0},
    "filter": {"expected_filtered": 4.0},
}


def indexed(number: str) -> None:
    """Write a corpus and its vectors."""
    for folder, identity in (("corpus", f"corpus-{number}"), ("vectors", f"index-{number}")):
        manifest = {"identity": identity, "corpus": f"corpus-{number}", "rows": 4, "dtype": "float32"}
        written(folder, f"data/{folder}", "manifest.json", manifest)


def written(draft: str, place: str, name: str, value: Any) -> None:
    """Publish a folder with one file, replacing the previous one."""
    write_json(Path("work", draft, name), value)
    publish(Path("work", draft), Path(place))


def finished(right: int, text: str = "first") -> None:
    """Write what the stages and DVC leave of a run that answers the first ``right`` of 40 questions."""
    indexed("1")
    write_json(Path("data/questions/test.jsonl"), {"id": "q0"})
    arms = {
        arm: [[{"id": f"q{i}", "answer_f1": float(i < count)} for i in range(40)]]
        for arm, count in {"bm25": 6, "frozen": 4, "oracle_query": 39, "trained": right}.items()
    }
    for arm, (rows,) in arms.items():
        Path("work/evaluation").mkdir(exist_ok=True)
        Path(f"work/evaluation/{arm}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(Path("work/evaluation/audits.json"), {})
    written("adapter", "models/adapter", "weights.json", text)
    summary: Any = summarise(arms, resamples=200, seed=0)
    write_json(Path("metrics/contrasts.json"), summary.pop("contrasts"))
    write_json(Path("metrics/evaluate.json"), summary | {"expected_evaluation": 4.0})
    write_json(Path("work/evaluation/played.json"), record_game(Params.load()) | {FIGURES: figures()})
    publish(Path("work/evaluation"), Path("data/evaluation"))
    for stage, metrics in SUITES.items():
        write_json(Path(f"metrics/{stage}.json"), metrics)
    made = {"towers": "both", "text": text, "adapter": content_of(Path("models/adapter"))}
    written("model", "models/retriever", "harr.json", FACTS | made)
    stages, lock = {}, {}
    for stage in ("train", "evaluate", "merge"):
        inputs = Path(f"data/inputs/{stage}.json")
        write_json(inputs, {"parameters": dict(parameters(stage, Params.load()))})
        digest = hashlib.md5(inputs.read_bytes(), usedforsecurity=False).hexdigest()
        stages[stage] = {"cmd": "true", "deps": [str(inputs)]}
        lock[stage] = {"deps": [{"path": str(inputs), "md5": digest}]}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": lock}))


@pytest.fixture
def params(stored: Path) -> Params:
    """The smoke recipe, after a run, in an empty store."""
    finished(right=24)
    return Params.load()


def merged(params: Params, execution: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Register as stage merge does, and return the number."""
    monkeypatch.setenv("HARR_EXECUTION", execution)
    with tracked_run("merge", params) as run:
        return str(register_model(run, params))


def version(params: Params, alias: str = CANDIDATE) -> Any:
    return open_client(params).get_model_version_by_alias(NAME, alias)


def number(params: Params, alias: str = CANDIDATE) -> str:
    return str(version(params, alias).version)


def test_a_version_says_its_figures_with_intervals_and_so_does_the_parent_run(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(params, "one", monkeypatch)
    found = version(params)
    figures = ["figure", "figure before training", "figure of the best simple arm"]
    assert list(found.tags)[:4] == ["arm", *figures], "MLflow shows the first"
    assert found.tags["figure"].startswith("trained: answer F1 60.0 [") and found.tags["figure"].endswith(
        ", n 40, 1 run"
    )
    assert "frozen: answer F1 10.0 [" in found.tags["figure before training"]
    assert found.tags["figure of the best simple arm"].startswith("bm25: answer F1 15.0 ["), "no ceiling"
    assert "; trained gains +45.0 [" in found.tags["figure of the best simple arm"]
    for part in (
        "trained        60.0 [",
        "`harr pull models:/harr-smoke/1 DIR`",
        "mlflow.pyfunc",
        "embedded by its base encoder, base.",
    ):
        assert part in found.description, found.description
    assert "/data/models" not in found.description and len(found.description) < 5000
    client = open_client(params)
    kept = Path(client.download_artifacts(found.run_id, "lineage"))
    assert (kept / "params.yaml").read_bytes() == Path("params.yaml").read_bytes()
    assert found.tags["harr.edited"] == "unknown: no git repository"
    parent = client.get_run(client.get_run(found.run_id).data.tags["mlflow.parentRunId"])
    headline = parent.data.metrics
    assert {name: headline[name] for name in ("answer_f1", "gain", "n", "runs")} == {
        "answer_f1": 0.6, "gain": 0.45, "n": 40, "runs": 1,
    }  # fmt: skip
    assert set(headline) == {"answer_f1", "low", "high", "gain", "gain_low", "gain_high", "n", "runs"}
    assert headline["gain_low"] > 0.2
    means = "trained beats bm25, the best arm without training: +45.0 points of answer F1 ["
    assert parent.data.tags["mlflow.note.content"].startswith(means)
    kept = Path(version(params).source)
    assert digest_of(kept / LOADABLE) == digest_of(Path("models/retriever")) == version(params).tags["model"]
    around = {path.name for path in kept.iterdir()}
    assert around == {
        LOADABLE,
        "MLmodel",
        "python_env.yaml",
        "requirements.txt",
        "input_example.json",
        "serving_input_example.json",
    }
    assert read_json(kept / "input_example.json") == ["Where was the founder of Acme born?"]
    assert "code" not in (kept / "MLmodel").read_text() and not Path("work/merge/mlmodel").exists()


def test_the_same_model_is_one_version_and_another_a_new_one(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    assert merged(params, "one", monkeypatch) == "1"
    assert merged(params, "two", monkeypatch) == "1", "DVC ran the stage again"
    finished(right=30, text="second")
    assert merged(params, "three", monkeypatch) == "2"
    finished(right=24)
    assert merged(params, "four", monkeypatch) == number(params) == "1", "and back: the alias follows"
    kept = Path(version(params).source) / LOADABLE / "harr.json"
    kept.unlink()
    assert merged(params, "five", monkeypatch) == "3", "files of the first were lost"


def test_a_try_out_is_a_version_and_no_candidate_until_it_is_asked_for(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(params, "one", monkeypatch)
    finished(right=30, text="second")
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", "0123456")
    assert merged(params, "two", monkeypatch) == "2" and number(params) == "1"
    monkeypatch.delenv("DVC_EXP_BASELINE_REV")
    assert keep_candidate(params) == "candidate of harr-smoke is version 2: the model in models/retriever"


@pytest.mark.fault(43)
def test_a_model_that_no_stage_made_here_becomes_the_candidate(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC pulled it or took it from its cache: the registry lacks it, or has it under another alias."""
    assert has_model(params)
    assert keep_candidate(params) == "registered harr-smoke version 1 (alias candidate): the model in models/retriever"
    assert keep_candidate(params) == ""
    runs = open_client(params).search_runs(["1"])
    assert sorted(run.data.tags.get("harr.stage", "parent") for run in runs) == ["parent", "register"]
    finished(right=30, text="second")
    merged(params, "two", monkeypatch)
    finished(right=24)
    assert keep_candidate(params) == "candidate of harr-smoke is version 1: the model in models/retriever"
    assert number(params) == "1" and len(open_client(params).search_model_versions(f"name = '{NAME}'")) == 2


@pytest.mark.fault(43)
def test_what_was_rolled_back_becomes_the_candidate_only_by_hand(params: Params, harr: Any) -> None:
    keep_candidate(params)
    promote(params)
    finished(right=36, text="second")
    keep_candidate(params)
    promote(params)
    rollback(params)
    back = "version 2 of harr-smoke was rolled back; `harr record --register` makes it the candidate"
    assert keep_candidate(params) == back and harr("record").stdout == f"{back}\n"
    with pytest.raises(PromotionRefused, match="has no candidate; run `dvc repro`, or `harr record --register`"):
        promote(params)
    assert harr("record", "--register").stdout.startswith("candidate of harr-smoke is version 2: ")
    assert number(params) == "2" and harr("record", "--register").stdout == "MLflow has everything\n"
    assert ROLLED_BACK not in version(params).tags
    assert promote(params).startswith("promoted: version 2") and number(params, CHAMPION) == "2"


@pytest.mark.fault(28)
def test_where_all_champions_were_deleted_the_next_one_is_the_first_again(params: Params) -> None:
    """`harr rollback` could name none; while one is left, the gate asks for a rollback to it."""
    keep_candidate(params)
    promote(params)
    open_client(params).delete_model_version(NAME, "1")
    keep_candidate(params)
    assert promote(params).startswith("promoted: version 2 of harr-smoke (trained) against its own arm frozen")
    finished(right=36, text="second")
    keep_candidate(params)
    promote(params)
    open_client(params).delete_model_version(NAME, "3")
    keep_candidate(params)
    with pytest.raises(PromotionRefused, match="version 3 was champion and is none any more"):
        promote(params)
    assert "champion of harr-smoke is version 2" in rollback(params, to="2")


@pytest.mark.fault(42)
def test_a_model_is_pulled_whole_and_nothing_else_is_replaced(params: Params) -> None:
    keep_candidate(params)
    uri, out = f"models:/{NAME}@candidate", Path("elsewhere/champion")
    assert pull(uri, out).startswith("pulled version 1 of harr-smoke to elsewhere/champion: 2 files")
    assert digest_of(out) == digest_of(Path("models/retriever")) == resolve(open_client(params), uri).digest
    assert pull(uri, out) == "elsewhere/champion is version 1 of harr-smoke already"
    finished(right=30, text="second")
    keep_candidate(params)
    assert pull(uri, out).startswith("pulled version 2") and read_json(out / "harr.json")["text"] == "second"
    for place in (Path("metrics"), Path("params.yaml")):
        with pytest.raises(ParamsError, match="is there and holds no model of harr, so it stays as it is"):
            pull(uri, place)
    with pytest.raises(ParamsError, match="is the folder that you are in, which cannot be replaced; name a new one"):
        pull(uri, Path())
    assert sorted(path.name for path in out.parent.iterdir()) == ["champion"]


def edited(section: str, **values: Any) -> None:
    """Write other values of a section to params.yaml."""
    used = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(used | {section: used[section] | values}))


def noted(stages: Any) -> None:
    """Write a dvc.lock without a stage of dvc.yaml: it cannot show that params.yaml has another learning rate."""
    Path("dvc.lock").write_text(yaml.safe_dump(stages))


def replaced(path: str, before: str, after: str) -> None:
    text = Path(path).read_text()
    assert before in text
    Path(path).write_text(text.replace(before, after))


def rows_of_another_arm() -> None:
    """Replace rows by another arm's, and remove the list that would show it."""
    shutil.copy("data/evaluation/frozen.jsonl", "data/evaluation/trained.jsonl")
    Path("data/evaluation/sha256sums.txt").unlink()


LOST = r"dvc\.lock does not name the parameters with which stage train ran; run"
FIGURE = r"{} is not what stage evaluate wrote; run `dvc checkout evaluate`"
WRONG: dict[str, tuple[Callable[[], object], type[HarrError], str]] = {
    "game": (  # stage merge reads it, too, and does not begin
        lambda: edited("retriever", k=7),
        HarrError,
        r"params\.yaml is not what (stage train ran with|data/inputs/merge\.json says) \(retriever\.k: 3 -> 7\)",
    ),
    "training": (  # neither evaluate nor merge reads it, but the version would claim to have learnt with it
        lambda: edited("train", optimizer={"learning_rate": 0.9}),
        ParamsError,
        r"params\.yaml is not what stage train ran with \(train\.optimizer\.learning_rate: 0\.0005 -> 0\.9\)",
    ),
    "no stages": (lambda: noted({"stages": {}}), ParamsError, LOST),
    "no note": (lambda: noted([]), ParamsError, LOST),
    "one stage": (lambda: noted({"stages": {"merge": {"deps": []}}}), ParamsError, LOST),
    "rows": (
        lambda: Path("data/evaluation/trained.jsonl").write_text(""),
        DamagedFile,
        r"trained\.jsonl is damaged .*; run `dvc",
    ),
    "hashes": (rows_of_another_arm, DamagedFile, r"sha256sums\.txt is missing, which tells rows that were played"),
    "figures": (  # they would be on the version's page, although the gate uses the rows
        lambda: replaced("metrics/evaluate.json", "0.6", "0.9"),
        DamagedFile,
        FIGURE.format("evaluate.json"),
    ),
    "contrasts": (
        lambda: replaced("metrics/contrasts.json", "0.5", "0.9"),
        DamagedFile,
        FIGURE.format("contrasts.json"),
    ),
    "adapter": (
        lambda: written("adapter", "models/adapter", "weights.json", "never played"),
        StaleState,
        r"data/evaluation was played with another state of the adapter .* than lies",
    ),
    "merged": (
        lambda: written("model", "models/retriever", "harr.json", FACTS | {"adapter": "of another training"}),
        StaleState,
        "models/retriever was made of adapter of anoth, but data/evaluation was play",
    ),
    "corpus": (
        lambda: indexed("2"),
        StaleState,
        r"another state of the corpus, the vectors than lies here, .* `dvc repro`",
    ),
}


@pytest.mark.fault(43)
def test_what_is_not_as_the_stages_left_it_is_not_registered(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by `harr record` nor by `tasks.merge`, which meets it if a folder was swapped without DVC."""
    for name, (change, kind, message) in WRONG.items():
        shutil.copy("recipes/smoke.yaml", "params.yaml")
        finished(right=24)
        change()
        for register in (keep_candidate, lambda used: merged(used, "one", monkeypatch)):
            with pytest.raises(kind, match=message):
                pytest.fail(f"{name}: {register(Params.load())}")
    finished(right=24)
    Path("metrics/evaluate.json").unlink()
    with pytest.raises(DamagedFile, match=FIGURE.format("evaluate.json")):
        keep_candidate(params)
    shutil.rmtree("models")
    assert not has_model(params)
    with pytest.raises(CorpusError, match="models/retriever holds no model; run `dvc pull` or `dvc repro`"):
        keep_candidate(params)
    assert open_client(params).search_registered_models() == []


def test_other_thresholds_are_another_version_and_never_those_of_today(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(params, "one", monkeypatch)
    other = {"min_questions": 1, "metric": "recall"}
    loose = params.model_copy(update={"tracking": params.tracking.model_copy(update=other)})
    assert keep_candidate(loose) == "" and json.loads(version(params).tags["rules"])["min_questions"] == 30
    assert json.loads(version(params).tags["rules"])["metric"] == "answer_f1", "which leads the table"
    assert merged(loose, "two", monkeypatch) == "2", "stage merge was run for it"
    assert json.loads(version(params).tags["rules"])["metric"] == "recall"


def test_a_retriever_whose_mlmodel_was_not_taken_is_no_version(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(right=24)
    files = MlflowClient.list_artifacts
    kept = lambda *given: [file for file in files(*given) if file.path != "retriever/MLmodel"]  # noqa: E731
    monkeypatch.setattr(MlflowClient, "list_artifacts", kept)
    with pytest.raises(Refused, match="did not take retriever/MLmodel of"):
        keep_candidate(params)
    assert open_client(params).search_registered_models() == []
