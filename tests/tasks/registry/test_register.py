"""A version is loadable, carries its figures, and is made once; ``candidate`` names the model in models/."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.errors import CorpusError, DamagedFile, ParamsError, PromotionRefused, StaleState
from harr.evaluate.summary import summarise
from harr.io.files import digest_of, publish, read_json, write_json
from harr.params import Params
from harr.services.model_registry import LOADABLE, resolve
from tasks.merge import register_model
from tasks.played import FIGURES, content_of, figures, played
from tasks.registry.candidate import has_model, keep_candidate
from tasks.registry.promote import CHAMPION, promote, rollback
from tasks.registry.pull import pull
from tasks.registry.register import CANDIDATE, ROLLED_BACK
from tasks.tracking.client import open_client
from tasks.tracking.run import tracked_run

NAME = "harr-smoke"
FACTS = {"base_model": "/data/models/base", "retriever": {"state": "lines"}, "history": True, "statuses": True}
SWAP = {"fall": 0.6, "low": 0.4, "high": 0.8, "own": 0.7, "swapped": 0.1, "n": 50.0}
SUITES = {
    "download": {"expected_corpus": 5.0, "expected_questions": 6.0},
    "embed": {"expected_vectors": 3.0},
    "index": {"expected_index": 3.0},
    "filter": {"expected_filtered": 4.0},
}


def finished(right: int, text: str = "first") -> None:
    """What the stages leave of a run that answers the first ``right`` of 40 questions, and what DVC notes of it."""
    for folder, identity in (("corpus", "corpus-1"), ("vectors", "index-1")):
        manifest = {"identity": identity, "corpus": "corpus-1", "rows": 4, "dtype": "float32"}
        write_json(Path(f"work/{folder}/manifest.json"), manifest)
        publish(Path(f"work/{folder}"), Path(f"data/{folder}"))
    write_json(Path("data/questions/test.jsonl"), {"id": "q0"})
    arms = {
        arm: [[{"id": f"q{i}", "answer_f1": float(i < count)} for i in range(40)]]
        for arm, count in {"bm25": 6, "frozen": 4, "oracle_query": 39, "full": right}.items()
    }
    for arm, (rows,) in arms.items():
        Path("work/evaluation").mkdir(exist_ok=True)
        Path(f"work/evaluation/{arm}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(Path("work/evaluation/audit.json"), {"exploits": {}, "named": {}, "swap": SWAP})
    write_json(Path("work/adapter/weights.json"), text)
    publish(Path("work/adapter"), Path("models/adapter"))
    summary: Any = summarise(arms, resamples=200, seed=0)
    write_json(Path("metrics/contrasts.json"), summary.pop("contrasts"))
    write_json(Path("metrics/evaluate.json"), summary | {"expected_evaluation": 4.0})
    write_json(Path("work/evaluation/played.json"), played(Params.load()) | {FIGURES: figures()})
    publish(Path("work/evaluation"), Path("data/evaluation"))
    for stage, held in SUITES.items():
        write_json(Path(f"metrics/{stage}.json"), held)
    made = {"towers": "both", "text": text, "adapter": content_of(Path("models/adapter"))}
    write_json(Path("work/model/harr.json"), FACTS | made)
    publish(Path("work/model"), Path("models/retriever"))
    used = yaml.safe_load(Path("params.yaml").read_text())
    stages = {stage: {"params": {"params.yaml": {"retriever": used["retriever"]}}} for stage in ("evaluate", "merge")}
    stages["train"] = {"params": {"params.yaml": {"train": used["train"]}}}
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": stages}))


@pytest.fixture
def params(stored: Path) -> Params:
    """The smoke recipe, run, in an empty store."""
    finished(right=24)
    return Params.load()


def merged(params: Params, execution: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Register as stage merge does."""
    monkeypatch.setenv("HARR_EXECUTION", execution)
    with tracked_run("merge", params) as run:
        return str(register_model.fn(run, params))


def version(params: Params, alias: str = CANDIDATE) -> Any:
    return open_client(params).get_model_version_by_alias(NAME, alias)


def number(params: Params, alias: str = CANDIDATE) -> str:
    return str(version(params, alias).version)


def test_a_version_says_its_figures_with_intervals_and_so_does_the_parent_run(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(params, "one", monkeypatch)
    found = version(params)
    assert found.tags["figure"].startswith("full: answer F1 60.0 [") and found.tags["figure"].endswith(", n 40, 1 run")
    assert "frozen: answer F1 10.0 [" in found.tags["figure before training"]
    assert found.tags["figure of the best simple arm"].startswith("bm25: answer F1 15.0 ["), "no ceiling"
    assert "; full gains +45.0 [" in found.tags["figure of the best simple arm"]
    for told in (
        "full           60.0 [",
        "`harr pull models:/harr-smoke/1 DIR`",
        "mlflow.pyfunc",
        "base encoder,\nbase;",
    ):
        assert told in found.description, found.description
    assert "/data/models" not in found.description and len(found.description) < 5000
    client = open_client(params)
    parent = client.get_run(client.get_run(found.run_id).data.tags["mlflow.parentRunId"])
    headline = parent.data.metrics
    assert {name: headline[name] for name in ("answer_f1", "gain", "n", "runs")} == {
        "answer_f1": 0.6, "gain": 0.45, "n": 40, "runs": 1,
    }  # fmt: skip
    assert set(headline) == {"answer_f1", "low", "high", "gain", "gain_low", "gain_high", "n", "runs"}
    assert headline["gain_low"] > 0.2
    means = "full beats bm25, the best arm without training: +45.0 points of answer F1 ["
    assert parent.data.tags["mlflow.note.content"].startswith(means)


def test_what_is_kept_is_yaml_json_and_texts_around_the_folder_that_merge_wrote(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(params, "one", monkeypatch)
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
    assert "Query: Where was she born?" in read_json(kept / "input_example.json")[0]
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


def test_a_model_that_no_stage_made_here_becomes_the_candidate(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC pulled it, or took it from its cache: the registry has it not, or under another alias."""
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


def test_what_was_rolled_back_becomes_the_candidate_only_by_hand(params: Params) -> None:
    keep_candidate(params)
    promote.fn(params)
    finished(right=36, text="second")
    keep_candidate(params)
    promote.fn(params)
    rollback.fn(params)
    assert keep_candidate(params) == "version 2 of harr-smoke was rolled back; `harr register` makes it the candidate"
    with pytest.raises(PromotionRefused, match="has no candidate; run `dvc repro`, or `harr register`"):
        promote.fn(params)
    assert "version 2" in keep_candidate(params, by_hand=True) and number(params) == "2"
    assert ROLLED_BACK not in version(params).tags
    assert promote.fn(params).startswith("promoted: version 2") and number(params, CHAMPION) == "2"


def test_where_all_champions_were_deleted_the_next_one_is_the_first_again(params: Params) -> None:
    """There is none that `harr rollback` could name; where one is left, the gate asks for that."""
    keep_candidate(params)
    promote.fn(params)
    open_client(params).delete_model_version(NAME, "1")
    keep_candidate(params)
    assert promote.fn(params).startswith("promoted: version 2 of harr-smoke against its own arm frozen")
    finished(right=36, text="second")
    keep_candidate(params)
    promote.fn(params)
    open_client(params).delete_model_version(NAME, "3")
    keep_candidate(params)
    with pytest.raises(PromotionRefused, match="version 3 was champion and is none any more"):
        promote.fn(params)
    assert "champion of harr-smoke is version 2" in rollback.fn(params, to="2")


def test_what_is_not_as_the_stages_left_it_is_not_registered(params: Params) -> None:
    values = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(values | {"retriever": values["retriever"] | {"k": 7}}))
    with pytest.raises(ParamsError, match=r"retriever in params\.yaml is not what stage evaluate ran with"):
        keep_candidate(Params.load())
    Path("data/evaluation/full.jsonl").write_text("")
    with pytest.raises(DamagedFile, match=r"full\.jsonl is damaged .*; run `dvc checkout evaluate`"):
        keep_candidate(params)
    shutil.rmtree("models")
    assert not has_model(params)
    with pytest.raises(CorpusError, match="models/retriever holds no model; run `dvc pull` or `dvc repro`"):
        keep_candidate(params)
    assert open_client(params).search_registered_models() == []


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


def test_figures_of_another_model_or_corpus_are_not_registered(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `flows.merge` meets where a folder was swapped without DVC."""
    write_json(Path("work/adapter/weights.json"), "never played")
    publish(Path("work/adapter"), Path("models/adapter"))
    with pytest.raises(StaleState, match=r"data/evaluation was played with another state of the adapter .* than lies"):
        merged(params, "one", monkeypatch)
    finished(right=24)
    write_json(Path("work/model/harr.json"), FACTS | {"adapter": "of another training"})
    publish(Path("work/model"), Path("models/retriever"))
    with pytest.raises(StaleState, match="models/retriever was made of adapter of anoth, but data/evaluation was play"):
        merged(params, "one", monkeypatch)
    finished(right=24)
    for folder, identity in (("corpus", "corpus-2"), ("vectors", "index-2")):
        manifest = {"identity": identity, "corpus": "corpus-2", "rows": 4, "dtype": "float32"}
        write_json(Path(f"work/{folder}/manifest.json"), manifest)
        publish(Path(f"work/{folder}"), Path(f"data/{folder}"))
    with pytest.raises(StaleState, match=r"another state of the corpus, the vectors than lies here, .* `dvc repro`"):
        merged(params, "one", monkeypatch)
    assert open_client(params).search_registered_models() == []


def test_rows_without_their_hashes_are_not_registered(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of another arm or model were put there, and the list that would tell was removed."""
    shutil.copy("data/evaluation/frozen.jsonl", "data/evaluation/full.jsonl")
    Path("data/evaluation/sha256sums.txt").unlink()
    for register in (lambda: keep_candidate(params), lambda: merged(params, "one", monkeypatch)):
        with pytest.raises(DamagedFile, match=r"sha256sums\.txt is missing, which tells rows that were played"):
            register()
    assert open_client(params).search_registered_models() == []


def test_parameters_that_trained_another_model_are_not_registered(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither stage evaluate nor merge reads the learning rate; the version would say that it learnt with it."""
    values = yaml.safe_load(Path("params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(values | {"train": values["train"] | {"learning_rate": 0.9}}))
    for register in (lambda: keep_candidate(Params.load()), lambda: merged(Params.load(), "one", monkeypatch)):
        with pytest.raises(ParamsError, match=r"train in params\.yaml is not what stage train ran with"):
            register()
    assert open_client(params).search_registered_models() == []


def test_a_note_of_dvc_that_lost_its_stages_vouches_for_nothing(params: Params) -> None:
    """dvc.lock was emptied, or is an older one: it cannot tell that params.yaml has another learning rate."""
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"train": {"params": ["train"]}}}))
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    for stages in ({}, {name: entry for name, entry in lock["stages"].items() if name != "train"}, None):
        Path("dvc.lock").write_text(yaml.safe_dump({"stages": stages} if stages is not None else []))
        with pytest.raises(ParamsError, match=r"dvc\.lock does not tell with which parameters stage train ran; run"):
            keep_candidate(params)
    Path("dvc.lock").write_text(yaml.safe_dump(lock))
    assert keep_candidate(params).startswith("registered harr-smoke version 1")


@pytest.mark.parametrize("name", ["evaluate.json", "contrasts.json"])
def test_figures_that_somebody_edited_are_not_registered(
    name: str, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would stand on the version's page, though the gate goes by the rows."""
    path = Path("metrics", name)
    path.write_text(path.read_text().replace("0.6", "0.9"))
    for register in (lambda: keep_candidate(params), lambda: merged(params, "one", monkeypatch)):
        with pytest.raises(DamagedFile, match=rf"{name} is not what stage evaluate wrote; run `dvc checkout evaluate`"):
            register()
    path.unlink()
    with pytest.raises(DamagedFile, match=f"{name} is not what stage evaluate wrote"):
        keep_candidate(params)
    assert open_client(params).search_registered_models() == []


def test_other_thresholds_are_another_version_and_never_those_of_today(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(params, "one", monkeypatch)
    loose = params.model_copy(update={"tracking": params.tracking.model_copy(update={"min_questions": 1})})
    assert keep_candidate(loose) == "" and json.loads(version(params).tags["rules"])["min_questions"] == 30
    assert merged(loose, "two", monkeypatch) == "2", "stage merge was run for it"
