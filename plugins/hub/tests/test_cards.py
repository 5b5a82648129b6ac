"""The card of a model tells every setting apart, as the tables do."""

from typing import Any

import yaml
from harr_hub.cards import language_model_card, retriever_card

from harr.evaluate.summary import summarise

FACTS = {"base": "b", "base_model": "b", "kind": "retriever"}


def runs(settings: bool) -> dict[str, list[list[dict[str, Any]]]]:
    """Two arms on 40 questions of two settings: trained finds all gold of one, and none of the other."""
    rows = [
        {"id": f"q{n}", "recall": found, "all_gold": found} | ({"setting": name} if settings else {})
        for n in range(40)
        for name, found in [("distractor", 1.0) if n < 30 else ("open", 0.0)]
    ]
    return {"frozen": [[row | {"recall": 0.5, "all_gold": 0.5} for row in rows]], "trained": [rows, rows]}


def test_the_card_shows_each_setting_and_no_mixture() -> None:
    summary = summarise(runs(settings=True), resamples=50, seed=0)
    card = retriever_card("ada/retriever", FACTS, summary, summary["contrasts"], "")
    distractor, opened = card.split("### distractor")[1].split("### open")
    assert "100.0 [100.0, 100.0]" in distractor and "| 30 |" in distractor and "over `frozen`: +50.0" in distractor
    assert "| 10 |" in opened and "75.0" not in card and "| 40 |" not in card
    results = yaml.safe_load(card.split("---\n")[1])["model-index"][0]["results"]
    assert [(one["dataset"]["config"], one["metrics"][0]["value"]) for one in results] == [
        ("distractor", 1),
        ("open", 0),
    ]
    spoken = language_model_card("ada/language_model", FACTS, {"method": "agent"}, summary, summary["contrasts"], "")
    assert spoken.count("### open") == 2 and "75.0" not in spoken
