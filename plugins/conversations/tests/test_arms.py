"""The arms of conversations in an evaluation, by the tiny encoder; and what a language model is asked to rewrite."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from by_hand import Fixed, Script
from harr_conversations import arms
from harr_conversations.arms import Rewrite
from stages import ROOT, make_world, nothing, world_params

from harr.corpus.passages import read_questions
from harr.errors import ParamsError
from harr.io.yaml_file import parse_yaml
from harr.types import Hop, Question, Search
from tasks.audits import play_audits
from tasks.paths import QUESTIONS
from tasks.play import play_arms

WRITER = {"kind": "local", "model": "m"}
SAID = (Hop("Who founded Acme?", "Ada\nBrown"), Hop("When?", ""))


def inputs(base: Any, **settings: Any) -> Any:
    return SimpleNamespace(settings=settings, base=base)


def test_a_language_model_rewrites_all_later_turns_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, base, question = Script("<think>hm</think>\nWhere was\nAda born?", ""), Fixed(), Question("q", "Where?")
    monkeypatch.setattr(arms, "build_reader", lambda section, seed, places, name: writer)
    searches = [Search(question, "Who?", k=2), Search(question, "Where?", SAID, k=3), Search(question, "How?", SAID)]
    assert len(Rewrite(inputs(base, writer=WRITER)).retrieve(searches)) == 3
    (batch,) = base.batches
    assert [(one.query, one.hops, one.k) for one in batch] == [
        ("Who?", (), 2), ("Where was Ada born?", (), 3), ("How?", (), 0),
    ]  # fmt: skip
    said = "User: Who founded Acme?\nAssistant: Ada Brown\nUser: When?\nAssistant: \nLast question: Where?"
    assert said in writer.asked[0].messages[-1]["content"] and len(writer.asked) == 2


def test_settings_that_are_none_of_it_are_refused() -> None:
    with pytest.raises(ParamsError, match="settings of Rewrite: unknown parameter model"):
        Rewrite(inputs(None, writer=WRITER, model="m"))


def test_the_recipe_is_played_and_its_report_counts_by_kind_and_turn(workplace: Path, tiny: str) -> None:
    recipe = parse_yaml((ROOT / "recipes/conversations.yaml").read_text())
    settings = {"people": 60, "train_conversations": 8, "test_conversations": 6}
    untrained = [one for one in recipe["evaluate"]["arms"] if one in ("bm25", "frozen", "history", "oracle_query")]
    evaluate = recipe["evaluate"] | {"arms": [*untrained, recipe["evaluate"]["arms"][2]], "resamples": 50}
    own = {name: recipe[name] for name in ("index", "retriever", "pipeline", "generator", "reward", "train", "filter")}
    download = recipe["download"] | {"settings": settings, "validation_questions": 5}
    params = world_params(tiny, **own, download=download, evaluate=evaluate)
    make_world(params)
    asked = read_questions(QUESTIONS / "test.jsonl")
    rows, episodes = play_arms(params, asked, nothing, model=None)
    assert episodes.keys() == {"bm25", "frozen", "history", "oracle_query", "all_turns"}
    state = {arm: played[-1].steps[0].retrieval.state for arm, played in episodes.items()}
    question = asked[-1]
    assert question.history and state["frozen"].endswith(question.text)
    assert state["oracle_query"].endswith(question.notes["rewrite"])
    first, last = question.history[0], question.history[-1]
    assert state["all_turns"].index(last.answer) < state["all_turns"].index(first.answer)
    assert state["history"].startswith(f"{question.text} [SEP] ") and last.answer in state["history"]
    (audit,) = play_audits(params, rows, episodes, nothing).values()
    table = {row.pop("arm"): row for row in audit["table"]}
    assert sum(int(name.split("(n ")[1].rstrip(")")) for name in table["bm25"]) == len(asked)
    first_turns = [row["ndcg_at_10"] for row in rows["oracle_query"][0] if row["id"].endswith("/1")]
    assert float(table["oracle_query"]["turn 1 (n 6)"]) == pytest.approx(100 * sum(first_turns) / 6, abs=0.05)
    assert table["oracle_query"]["turn 1 (n 6)"] == table["frozen"]["turn 1 (n 6)"]
