"""The gate judges what was registered: today's params.yaml, edited rows and repeated attempts cannot get past it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from registries import Registry

from harr.errors import PromotionRefused
from harr.io.files import fingerprint, sha256
from harr.services.model_registry import copy_artifacts
from tasks.registry import attempts
from tasks.registry.gate import judge

RULES = {"metric": "recall", "baseline": "frozen", "resamples": 2000, "seed": 0, "min_questions": 10}
EXPECTATIONS = json.dumps({"corpus": 5})


class Store(Registry):
    """A registry in a folder to which tests add versions."""

    def add(self, number: str, rows: dict[str, list[dict[str, Any]]], **tags: str) -> Any:
        """Register a version with its arms' rows."""
        run = self.run()
        folder = self.kept(run) / "evaluation"
        folder.mkdir(parents=True)
        for arm, own in rows.items():
            (folder / f"{arm}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
        results = fingerprint({path.name: sha256(path) for path in folder.iterdir()})
        all_tags = {"results": results, "model": number, "evaluation": "game", "questions": "asked", "index": "i"}
        all_tags |= {"rules": json.dumps(RULES), "expectations": EXPECTATIONS, "kind": "retriever"} | tags
        return SimpleNamespace(name="m", version=number, run_id=run, tags=all_tags)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty registry."""
    monkeypatch.setattr("tasks.registry.gate.read_vectors_manifest", lambda: {"identity": "i"})
    made = Store(tmp_path)
    made.create_registered_model("m")
    return made


def answered(recall: float, f1: float, count: int = 32) -> list[dict[str, Any]]:
    """Return rows of questions that differ a little."""
    return [{"id": f"q{i}", "recall": recall - (i % 4) / 20, "answer_f1": f1 - (i % 4) / 20} for i in range(count)]


def refusal(store: Store, candidate: Any, champion: Any = None, replay: Any = None) -> str:
    """Return the reason for a refusal."""
    past = [champion.version] if champion else []
    return judge(store, candidate, champion, past, replay).refusal


CASES: dict[str, tuple[Callable[[list[dict[str, Any]]], list[dict[str, Any]]], str]] = {
    "one is absent": (
        lambda rows: rows[1:],
        "the two have not the same questions: 1 of 32 are only in one (first: q0)",
    ),
    "others": (lambda rows: [row | {"id": f"x{row['id']}"} for row in rows], "64 of 64 are only in one"),
}


@pytest.mark.fault(28)
@pytest.mark.parametrize("case", CASES)
def test_rows_that_cannot_be_compared_are_named(case: str, store: Store) -> None:
    change, message = CASES[case]
    good = store.add("1", BETTER)
    assert refusal(store, good) == ""
    bad = store.add("2", {"trained": change(answered(0.9, 0.9)), "frozen": answered(0.3, 0.3)})
    assert message in refusal(store, bad)


def test_the_metric_that_decides_is_that_of_the_champion(store: Store) -> None:
    before = store.add("1", {"trained": answered(0.9, 0.4)})
    other = store.add("2", {"trained": answered(0.1, 0.9)}, rules=json.dumps(RULES | {"metric": "answer_f1"}))
    assert "metric: found answer F1, needed recall, which decided for the champion" in refusal(store, other, before)


@pytest.mark.parametrize("tag", ["", "no json", "[]"])
def test_a_version_without_rules_is_refused_with_how_it_gets_them(tag: str, store: Store) -> None:
    old = store.add("1", {"trained": answered(0.9, 0.9)}, rules=tag)
    with pytest.raises(PromotionRefused, match=r"does not say by what it is compared .* `dvc repro -f -s merge`"):
        judge(store, old, None, [])


BETTER = {"trained": answered(0.9, 0.9), "frozen": answered(0.3, 0.3)}
NONE = "expectations: found none recorded, needed all held"
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("index: found other, needed i", {"index": "other"}),
    (NONE, {"expectations": "{}"}),
    ("expectations: found no result of vectors", {"expectations": '{"corpus": 5, "vectors": 0}'}),
    ("questions: found 32, needed at least 33 (tracking.min_questions)", {"rules": {"min_questions": 33}}),
]


@pytest.mark.fault(28)
def test_every_condition_is_asked_and_stands_on_the_page(store: Store) -> None:
    for number, (message, change) in enumerate(REFUSED):
        tags = change | ({"rules": json.dumps(RULES | change["rules"])} if "rules" in change else {})
        verdict = judge(store, store.add(str(number), BETTER, **tags), None, [])
        assert message in verdict.refusal and re.search("1 of 10 conditions does not hold", verdict.page), message
        assert message.split(", ")[0].split("found ")[1] in verdict.page
    enough = json.dumps(RULES | {"min_questions": 32})
    verdict = judge(store, store.add("last", BETTER, rules=enough), None, [])
    assert verdict.refusal == "" and "all 10 conditions hold" in verdict.page


def test_an_evaluation_is_copied_once_whatever_number_of_arms_is_asked(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    monkeypatch.setattr(
        "tasks.registry.gate.copy_artifacts",
        lambda client, run, path, place: copied.append(run) or copy_artifacts(client, run, path, place),
    )
    rules = json.dumps(RULES | {"untrained": ["frozen", "bm25", "hybrid"]})
    judge(
        store,
        store.add("1", BETTER | {"bm25": answered(0.2, 0.2), "hybrid": answered(0.1, 0.1)}, rules=rules),
        None,
        [],
    )
    assert len(copied) == 1


def test_a_candidate_that_a_rule_beats_is_refused_with_the_rule_s_name_and_lead(store: Store) -> None:
    """It beats the champion or its own frozen arm but loses to full-text search; losing to a ceiling is allowed."""
    rules = json.dumps(RULES | {"untrained": ["frozen", "bm25", "hybrid"]})
    arms = BETTER | {"bm25": answered(1.0, 0.2), "hybrid": answered(0.5, 0.5), "oracle_query": answered(1.0, 1.0)}
    behind = "best untrained arm: found bm25: recall -10.0 [-10.0, -10.0] points, needed a gain that is not below 0"
    loses = store.add("2", arms, rules=rules)
    before = store.add("1", {"trained": answered(0.6, 0.6)})
    for champion in (None, before):
        assert behind in refusal(store, loses, champion)
    equal = store.add("3", arms | {"bm25": answered(0.9, 0.2)}, rules=rules)
    verdict = judge(store, equal, before, ["1"])
    assert verdict.refusal == "" and "bm25: recall +0.0 " in verdict.page
    other = store.add("4", arms | {"bm25": answered(0.95, 0.2)}, rules=json.dumps(RULES | {"untrained": ["frozen"]}))
    assert refusal(store, other) == "", "what the rules do not name as untrained is not asked"


def test_a_rule_that_lacks_the_metric_on_a_question_still_counts(store: Store) -> None:
    """An unread verdict, or a question without an answer, once took the best rule out of the comparison."""
    rules = json.dumps(RULES | {"untrained": ["frozen", "bm25"]})
    bm25 = answered(1.0, 0.2)
    del bm25[3]["recall"]
    assert "best untrained arm: found bm25" in refusal(store, store.add("1", BETTER | {"bm25": bm25}, rules=rules))
    partly = {arm: [row if n else {"id": row["id"]} for n, row in enumerate(rows)] for arm, rows in BETTER.items()}
    all_lack_one = store.add("2", partly | {"bm25": bm25}, rules=rules)
    assert "best untrained arm: found bm25" in refusal(store, all_lack_one)


@pytest.mark.fault(28)
def test_rows_that_are_not_those_that_were_registered_are_refused(store: Store) -> None:
    version = store.add("1", {"trained": answered(0.3, 0.3), "frozen": answered(0.3, 0.3)})
    path = store.kept(version.run_id) / "evaluation/trained.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in answered(1.0, 1.0)))
    with pytest.raises(PromotionRefused, match="the evaluation of version 1 of m in MLflow's artifact store is not"):
        judge(store, version, None, [])


@pytest.mark.fault(28)
def test_every_candidate_on_the_same_questions_is_held_to_a_stricter_level(store: Store) -> None:
    """A gain that passes once fails as the twelfth attempt; after twenty the questions are used up."""
    rows = answered(0.5, 0.5)
    lucky = [row | {"recall": row["recall"] + (0.5 if number % 6 == 0 else 0.0)} for number, row in enumerate(rows)]
    before = store.add("0", {"trained": rows})
    refusals = []
    for number in range(1, attempts.MOST + 2):
        candidate = store.add(str(number), {"trained": lucky})
        verdict = judge(store, candidate, before, ["0"])
        attempts.note(store, candidate)
        attempts.note(store, candidate)
        refusals.append(verdict.refusal)
    assert refusals[0] == "" and "gain: found recall +9.4" in refusals[11]
    assert "attempt" not in refusals[attempts.MOST - 1]
    assert "attempt: found number 21 on these questions" in refusals[-1] and "needed at most 20" in refusals[-1]
    fresh = store.add("fresh", {"trained": lucky}, questions="others")
    assert refusal(store, fresh, before) == ""


def test_a_champion_of_another_game_is_compared_where_it_was_played_again(store: Store) -> None:
    before = store.add("1", {"trained": answered(1.0, 1.0)}, evaluation="old game")
    after = store.add("2", {"trained": answered(0.8, 0.8)})
    assert "same game: found another" in refusal(store, after, before)
    assert refusal(store, after, before, lambda: answered(0.3, 0.3)) == ""
    assert "gain: found recall -10.0" in refusal(store, after, before, lambda: answered(0.9, 0.9))
