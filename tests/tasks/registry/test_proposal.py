"""Any arm of the table can be champion: the best one, or a named one, trained or not."""

import asyncio
import contextlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
import yaml
from projects import make_project, train_stand_in
from stages import ROOT

import harr
from harr.builders.players import open_players
from harr.errors import ParamsError, PromotionRefused
from harr.io.files import read_json, read_jsonl, write_json, write_text
from harr.params import Params
from harr.serve.bodies import SearchBody
from harr.serve.follower import Follower
from harr.serve.searcher import Searcher
from harr.serve.service import RetrieverService
from harr.services.model_registry import CHAMPION
from harr.types import Question, Search
from tasks.evaluation_record import record_game
from tasks.merge import export_arm
from tasks.paths import ADAPTER, ARMS as OTHERS, EVALUATION, PLACES, RUNS
from tasks.registry.promote import PROMOTED_BY, promote, rollback
from tasks.registry.register import CANDIDATE
from tasks.registry.replay import replay_of
from tasks.tracking.client import open_client
from tasks.tracking.errors import look_up

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # mlflow.pyfunc warns about its own types
NAME = "harr-smoke"
ARMS = ["bm25", "frozen", "last_answer", "hybrid", "oracle_query", "infonce", "trained"]
SUITES = {"download": ("corpus", "questions"), "embed": ("vectors",), "index": ("index",)}


@pytest.fixture
def params(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """An indexed corpus with nothing trained or evaluated, in an empty store."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    make_project(links=False)
    settings: Any = yaml.safe_load(Path("params.yaml").read_text())
    settings["evaluate"]["arms"] = ARMS
    settings["tracking"]["min_questions"] = 6
    Path("params.yaml").write_text(yaml.safe_dump(settings))
    for stage, suites in SUITES.items():
        write_json(Path(f"metrics/{stage}.json"), {f"expected_{suite}": 3.0 for suite in suites})
    return Params.load()


def asking(params: Params, arm: str) -> Params:
    """Return parameters that make the gate compare with this arm."""
    return params.model_copy(update={"tracking": params.tracking.model_copy(update={"baseline": arm})})


def version(alias: str = CHAMPION) -> Any:
    return look_up(open_client(Params.load()).get_model_version_by_alias, NAME, alias)


def test_a_project_begins_with_an_arm_that_nobody_trained_and_any_other_follows(
    params: Params, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert params.proposals == [arm for arm in ARMS if arm != "oracle_query"], "a ceiling reads the gold"
    with pytest.raises(PromotionRefused, match="has no candidate"):
        promote(params)
    (tmp_path / RUNS / "smoke").mkdir(parents=True)
    mends = "run `harr run --recipe smoke`, or `harr record --register --recipe smoke`"
    with contextlib.chdir(tmp_path / RUNS / "smoke"), pytest.raises(PromotionRefused, match=mends):
        promote(params)
    with pytest.raises(
        ParamsError, match=r"--arm oracle_query cannot be champion; of evaluate\.arms these can: bm25, f"
    ):
        promote(params, arm="oracle_query")
    with pytest.raises(
        PromotionRefused, match=r"best untrained arm: found \w+: answer F1 -\d+\.\d .* not below 0"
    ) as lead:
        promote(params, arm="frozen")
    shown = capsys.readouterr().out
    assert "gain: no champion, and nothing was trained" in shown and max(map(len, shown.splitlines())) <= 80
    best = str(lead.value).split("best untrained arm: found ")[1].split(":")[0]
    assert best in ARMS and best != "frozen" and version() is None
    with pytest.raises(PromotionRefused, match="has no rows of arm infonce; run `dvc repro`"):
        promote(params, arm="infonce")

    assert promote(params).startswith(
        f"promoted: version 2 of {NAME} ({best}) against no champion yet: no champion, and"
    )
    assert f"best arm of the table in answer F1: {best}; `harr promote --arm NAME`" in capsys.readouterr().out
    champion = version()
    assert champion.tags["arm"] == best and version(CANDIDATE) is None, "which names the model in models/"
    assert not _attempts(), "nothing was to be beaten, so nothing is taken from the level of what is trained"
    assert champion.tags[PROMOTED_BY] and champion.tags["figure"].startswith(f"{best}: answer F1 ")
    assert f"It is the arm {best}, which " in champion.description
    search = Search(Question("", "Who?"), "Who founded the firm?")
    with open_players(params, PLACES, [], candidates="corpus") as player:
        [wanted] = player(params.evaluate.arm_table[best], None).retrieve([search])
    with harr.Retriever.load(f"models:/{NAME}@champion", index=".") as retriever:
        assert retriever.search([search]) == [wanted.passages]
    model = mlflow.pyfunc.load_model(f"models:/{NAME}@champion", model_config={"index": str(Path.cwd())})
    assert [passage["id"] for passage in model.predict(["Who founded the firm?"])[0]] == [
        passage.id for passage in wanted.passages
    ]

    with pytest.raises(PromotionRefused, match="gain: found answer F1 -"):
        promote(params, arm="frozen")
    assert _attempts()
    rollback_and_again(params, best)


def _attempts() -> list[str]:
    tags = open_client(Params.load()).get_registered_model(NAME).tags
    return [tag for tag in tags if tag.startswith("harr.attempts")]


def rollback_and_again(params: Params, best: str) -> None:
    """The nightly run does not promote again what was rolled back; a person does, by its name."""
    client = open_client(params)
    client.set_registered_model_alias(NAME, "previous_champion", "1")
    assert rollback(params).startswith("rolled back") and version().tags["arm"] == "frozen"
    with pytest.raises(
        PromotionRefused, match=f"version 2 of {NAME}, {best}, was rolled back; `harr promote --arm {best}`"
    ):
        promote(params)
    client.delete_registered_model_alias(NAME, CHAMPION)
    client.delete_registered_model_tag(NAME, "harr.champions")
    assert promote(params, arm=best).startswith(f"promoted: version 2 of {NAME} ({best})")


def test_the_gate_asks_the_arm_that_params_yaml_names(params: Params) -> None:
    assert promote(asking(params, "frozen"), arm="frozen").startswith(f"promoted: version 1 of {NAME} (frozen)")
    assert read_json(EVALUATION / "played.json")["rules"]["untrained"] == ["frozen"]


def test_an_arm_without_training_is_played_again_after_a_change(params: Params) -> None:
    promote(asking(params, "frozen"), arm="frozen")
    settings: Any = yaml.safe_load(Path("params.yaml").read_text())
    settings["evaluate"]["arms"] = [*ARMS, "history"]
    Path("params.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(PromotionRefused, match="against champion 1: gain: found answer F1 "):
        promote(asking(Params.load(), "history"), arm="history")
    assert (EVALUATION / "history.jsonl").exists()


@pytest.mark.parametrize("arm", ["bm25", "hybrid", "last_answer"])
def test_a_champion_of_another_corpus_is_played_as_the_arm_that_it_is(params: Params, arm: str) -> None:
    """It is played as its folder says, not as `trained`: its weights are not today's."""
    params = asking(params, "frozen")
    promote(params, arm="frozen")
    export_arm(params, arm, Path("kept"))
    today = params.model_copy(update={"retriever": params.retriever.model_copy(update={"weights": (0.1, 0.9)})})
    candidate = SimpleNamespace(version="7", run_id=version().run_id, tags=version().tags)
    champion = SimpleNamespace(name=NAME, version="1", tags=version().tags)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.registry.replay.fetch", lambda *given: Path("kept"))
        patch.setattr("tasks.registry.replay.record_game", lambda used: record_game(params))
        rows = replay_of(open_client(params), today, candidate, champion)()
    assert rows == read_jsonl(EVALUATION / f"{arm}.jsonl")


def test_an_arm_that_another_package_trains_is_exported_as_any_other(params: Params) -> None:
    train_stand_in(0.1)
    settings: Any = yaml.safe_load(Path("params.yaml").read_text())
    settings["evaluate"] = {"arms": [{"name": "mine", "method": "mine.learn:METHOD"}, "trained"], "seeds": 1}
    Path("params.yaml").write_text(yaml.safe_dump(settings))
    own = Params.load()
    assert own.proposals == ["mine", "trained"]
    shutil.copytree(ADAPTER, OTHERS / "mine-0")
    export_arm(own, "mine", Path("kept"))
    facts = read_json(Path("kept/harr.json"))
    assert (facts["arm"], facts["trained"]) == ("mine", True)


def test_a_retriever_of_another_package_is_promoted_and_served_where_its_module_is(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Path("package/own_retriever.py")
    write_text(module, (ROOT / "examples/own_retriever.py").read_text())
    monkeypatch.syspath_prepend(module.parent.resolve())
    arm = {"name": "moved", "retriever": "own_retriever:Rocchio", "settings": {"weight": 0.5}}
    settings: Any = yaml.safe_load(Path("params.yaml").read_text())
    settings["evaluate"]["arms"] = ["frozen", arm, "trained"]
    Path("params.yaml").write_text(yaml.safe_dump(settings))
    own = asking(Params.load(), "moved")
    assert promote(own, arm="moved").startswith(f"promoted: version 1 of {NAME} (moved) against no champion yet")
    assert "It is the arm moved, which is the retriever own_retriever:Rocchio;" in version().description
    search = Search(Question("", "Who?"), "Who founded the firm?")
    with open_players(own, PLACES, [], candidates="corpus") as player:
        [wanted] = player(own.evaluate.arm_table["moved"], None).retrieve([search])
        assert wanted != player(own.evaluate.arm_table["frozen"], None).retrieve([search])[0]
    with harr.Retriever.load(f"models:/{NAME}@champion", index=".") as retriever:
        assert retriever.search([search]) == [wanted.passages]
    [folder] = Path(".harr/registry").glob(f"{NAME}-1-*")
    assert not list(folder.rglob("*.py")), "its name and settings, and no code"
    searcher = Searcher(Path(), "float32")
    service = RetrieverService(searcher, Follower("x", Path(), Path(), searcher.load), room=10)
    searcher.load(folder, "1")
    found = asyncio.run(service.search(SearchBody(question="Who?", query="Who founded the firm?")))["passages"]
    assert [(one["id"], one["score"]) for one in found] == [(one.id, None) for one in wanted.passages]
    module.unlink()
    monkeypatch.delitem(sys.modules, "own_retriever")
    with pytest.raises(ParamsError, match=r"/harr\.json: own_retriever:Rocchio cannot be imported \(.*PYTHONPATH\?$"):
        searcher.load(folder, "2")
    assert searcher.serving and searcher.serving.version == "1"
    service.close()
