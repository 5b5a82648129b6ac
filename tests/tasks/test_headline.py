"""The headline: a few figures and one sentence that never claims more than the interval says."""

import re
from typing import Any

from harr.arms import ARMS, method_arm, retriever_arm
from harr.evaluate.summary import summarise
from harr.evaluate.tables import comparisons, table
from tasks.headline import arm_figures, evaluation_note, headline_figures, headline_words
from tasks.registry.figures import figure_tags


def summary(right: int, *others: str) -> Any:
    """Summarise 40 questions: bm25 is right in 20, trained in ``right``, every other arm in 4."""
    counts = {"frozen": 4, "bm25": 20, "oracle_query": 39, **dict.fromkeys(others, 4), "trained": right}

    played = {
        arm: [[{"id": f"q{i}", "answer_f1": float(i < count), "searches": 2.0} for i in range(40)]]
        for arm, count in counts.items()
    }
    return summarise(played, resamples=200, seed=0)


def test_the_headline_is_at_most_eight_figures_of_trained_and_of_its_gain_over_the_best_simple_arm() -> None:
    found = headline_figures(summary(36))
    assert list(found) == ["answer_f1", "low", "high", "gain", "gain_low", "gain_high", "n", "runs"]
    assert (found["answer_f1"], found["gain"], found["n"]) == (0.9, 0.4, 40)
    assert found["low"] < 0.9 < found["high"] and 0 < found["gain_low"] < 0.4 < found["gain_high"]


def test_the_sentence_claims_what_the_interval_says() -> None:
    arm = "bm25, the best arm without training:"
    assert headline_words(summary(36)).startswith(f"trained beats {arm} +40.0 points of answer F1 [")
    assert headline_words(summary(21)).startswith(f"trained cannot be told apart from {arm} +2.5 points of answer F1 [")
    assert headline_words(summary(4)).startswith(f"trained stays behind {arm} -40.0 points of answer F1 [")


def test_an_arm_of_another_package_can_be_the_best_without_training() -> None:
    played: Any = {
        arm: [[{"id": f"q{i}", "answer_f1": float(i < right)} for i in range(40)]]
        for arm, right in {"bm25": 20, "mine": 30, "learnt": 39, "trained": 36}.items()
    }
    arms = ARMS | {"mine": retriever_arm("mine.search:Retriever", {}), "learnt": method_arm("mine.learn:METHOD", {})}
    summarised = summarise(played, arms=arms, resamples=200, seed=0)
    assert headline_figures(summarised)["gain"] == 0.15
    assert headline_words(summarised).startswith("trained beats mine, the best arm without training: +15.0 points")
    assert "mine" in str(figure_tags(summarised, "trained"))


def test_an_arm_that_scores_nothing_is_a_fault_and_no_rival() -> None:
    """It may be one of several rivals, or the baseline."""
    line = "bm25 scores 0.0 on all questions, which is a fault and no rival; see what it found in the report."
    played: Any = {
        arm: [[{"id": f"q{i}", "answer_f1": float(i < right), "recall": float(i < right)} for i in range(40)]]
        for arm, right in {"frozen": 4, "bm25": 0, "trained": 36}.items()
    }
    beaten = summarise(played, resamples=200, seed=0)
    first, second = headline_words(beaten).split("\n")
    assert first.startswith("trained beats frozen") and second == line
    assert list(comparisons(beaten, "answer_f1")[0]) == ["frozen"] and line in table(beaten)
    alone = summarise({name: played[name] for name in ("bm25", "trained")}, resamples=200, seed=0)
    assert headline_words(alone) == f"trained has 90.0 % answer F1 on 40 questions, 1 run.\n{line}"
    assert set(headline_figures(alone)) == {"answer_f1", "low", "high", "n", "runs"}


def test_what_trained_is_not_compared_with_or_not_there_is_not_made_up() -> None:
    alone = summary(36)
    del alone["contrasts"]
    alone["paired"] = {}
    assert re.fullmatch(r"trained has 90\.0 % answer F1 on 40 questions, 1 run\.", headline_words(alone))
    assert set(headline_figures(alone)) == {"answer_f1", "low", "high", "n", "runs"}
    nothing: Any = {**alone, "arms": {name: cells for name, cells in alone["arms"].items() if name != "trained"}}
    assert headline_figures(nothing) == {} and headline_words(nothing) == ""


def test_the_note_and_the_tags_of_a_version_carry_the_headline() -> None:
    found = summary(36)
    figures, tags = headline_figures(found), figure_tags(found, "trained")
    ends = f"[{100 * figures['low']:.1f}, {100 * figures['high']:.1f}]"
    assert f"{100 * figures['answer_f1']:.1f} {ends}" in tags["figure"]
    assert f"trained gains +{100 * figures['gain']:.1f} [" in tags["figure of the best simple arm"]
    note = evaluation_note(found)
    assert note.startswith("trained beats bm25") and "```text\narm " in note


def test_mlflow_gets_what_leads_of_every_arm_and_all_of_trained() -> None:
    found = arm_figures(summary(36, "last_answer", "history"))
    assert "trained/searches" in found and "frozen/answer_f1" in found and "frozen/searches" not in found
    assert len(found) < 20 and not [name for name in found if re.search(r"seeds_", name)]
