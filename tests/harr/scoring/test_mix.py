"""The weighted reward against numbers worked by hand."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from harr.errors import CorpusError, ParamsError
from harr.params import Weight
from harr.scoring.mix import Reward
from harr.types import Episode, Generate, Hop, Outcome, Passage, Question, Retrieval, Search, Step

QUESTION = Question("q", "Who?", answers=("Ada",), gold_ids=("a", "b"))


def episode(answer: str | None, *found: str, statuses: Sequence[str] = ()) -> Episode:
    """One passage per step."""
    steps = tuple(Step(Search(QUESTION, "Who?"), Retrieval((Passage(pid, ""),))) for pid in found)
    return Episode(QUESTION, steps, Outcome(answer, tuple(Hop("Who?", "", status) for status in statuses)))


def test_terms_of_episodes_and_steps_are_weighed_together() -> None:
    """EM 1; relevance (1, .5, 0) mean .5; novelty (1, 0, 1) mean 2/3."""
    played = episode("Ada", "a", "a", "b", statuses=("FOUND", "AMBIGUOUS", "NOT_FOUND"))
    reward = Reward({"answer_em": 1.0, "relevance": 0.5, "novelty": 3.0})
    scores = reward.score([played])
    assert scores == {"answer_em": [1.0], "relevance": [[1.0, 0.5, 0.0]], "novelty": [[1.0, 0.0, 1.0]]}
    assert reward.totals(scores) == [pytest.approx(1.0 + 0.25 + 2.0)]


def test_a_weight_counts_only_in_its_steps() -> None:
    reward = Reward({"recall": Weight(weight=2.0, end=10), "answer_em": Weight(weight=1.0, start=5)})
    assert [reward.weights(step) for step in (0, 5, 10, None)] == [
        {"recall": 2.0},
        {"recall": 2.0, "answer_em": 1.0},
        {"answer_em": 1.0},
        {"answer_em": 1.0},
    ]


def test_parts_by_step_are_gains() -> None:
    played = [episode("Ada", "a", "x", "b"), episode(None)]
    reward = Reward({"recall": 1.0, "novelty": 0.5})
    scores = reward.score(played)
    parts = list(reward.parts(scores, played, 0, by_step=True))
    assert parts == [(1.0, [[0.5, 0.0, 0.5], []]), (0.5, [[1.0, 1.0, 1.0], []])]
    assert next(iter(reward.parts(scores, played, 0, by_step=False))) == (1.0, [1.0, 0.0])


def test_where_a_term_does_not_apply_the_others_weigh_more() -> None:
    unanswered = Episode(Question("q", "Who?", gold_ids=("a",)))
    assert Reward({"recall": 1.0, "answer_em": 1.0})(unanswered) == 0.0
    with pytest.raises(CorpusError, match="no reward term applies"):
        Reward({"answer_em": 1.0})(unanswered)


def test_a_function_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_terms.py").write_text(
        "limit = 3\ndef short(episode):\n    return float(len(episode.steps) < limit)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    reward = Reward({"my_terms:short": 1.0})
    assert [reward(episode("Ada", "a")), reward(episode("Ada", "a", "b", "c"))] == [1.0, 0.0]
    for name, message in (
        ("my_terms:long", "cannot be imported"),
        ("no_such_module:short", "cannot be imported"),
        ("my_terms:limit", "is no function"),
        ("answer_f2", "unknown term answer_f2; known: answer_f1"),
    ):
        with pytest.raises(ParamsError, match=message):
            Reward({name: 1.0})


@pytest.mark.parametrize("weights", [{"recall": 0.0}, {"recall": float("nan")}, {"judge": 1.0}])
def test_wrong_weights_are_one_clear_line(weights: dict[str, float]) -> None:
    with pytest.raises(ParamsError, match=r"reward\.terms"):
        Reward(weights)


def test_the_judge_is_asked_once_and_only_about_answers() -> None:
    asked: list[Sequence[Generate]] = []

    def complete(requests: Sequence[Generate]) -> list[str]:
        asked.append(requests)
        return ['{"correct": true}', "I cannot say."]

    reward = Reward({"judge": 1.0, "recall": 1.0}, SimpleNamespace(complete=complete, usage=dict))
    scores = reward.score([episode("Ada", "a"), episode(None), episode("Eve", "a", "b")])
    assert scores["judge"] == [1.0, 0.0, None]
    assert len(asked) == 1 and "Answer: Ada" in asked[0][0].messages[1]["content"]
    assert reward.totals(scores) == [1.5, 0.0, 2.0], "an unreadable verdict does not apply: recall counts double"


def test_a_verdict_that_cannot_be_read_is_counted_and_ends_nothing() -> None:
    judge = SimpleNamespace(
        complete=lambda requests: ["I cannot say."] * len(requests), usage=lambda: {"requests": 1.0}
    )
    reward = Reward({"judge": 1.0}, judge)
    assert reward(episode("Ada", "a")) == 0.0
    assert reward.usage() == {"requests": 1.0, "unreadable verdicts": 1.0}


def test_a_phase_ends_where_the_terms_change() -> None:
    reward = Reward({"recall": Weight(weight=1, end=10), "answer_f1": Weight(weight=1, start=5)})
    assert [reward.phase(step) for step in (0, 4, 5, 9, 10, 99)] == [0, 0, 1, 1, 2, 2]


def test_the_terms_of_an_episode_by_name() -> None:
    reward = Reward({"recall": 1.0, "novelty": 0.5, "relevance": 0.5})
    no_status = Episode(QUESTION, episode("Ada", "a", "a").steps, Outcome("Ada", (Hop("q", "a"), Hop("q", "a"))))
    means = reward.means([no_status])[0]
    assert means.pop("reward") == reward(no_status)
    assert means == {"recall": 0.5, "novelty": 0.5}, "relevance needs a status"


def test_misses_charge_every_step_without_new_gold() -> None:
    question = Question("q", "Who?", gold_ids=("a", "b"))
    found = [Step(Search(question, "Who?"), Retrieval((Passage(name, ""),))) for name in ("a", "x", "a", "b")]
    episode = Episode(question, tuple(found))
    reward = Reward({"recall": 1.0, "misses": -0.2})
    assert reward.score([episode])["misses"] == [[0.0, 1.0, 1.0, 0.0]]
    assert reward(episode) == pytest.approx(1.0 - 0.2 / 2)
    assert Reward({"recall": 1.0, "misses": -0.2, "answer_em": 1.0}).means([Episode(Question("q", "Who?"), ())]) == [{}]
