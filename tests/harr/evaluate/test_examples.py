"""Which plays are shown side by side, and what is told of them."""

from episodes import played

from harr.evaluate.examples import trajectories
from harr.types import Episode


def answered(right: str) -> list[Episode]:
    """Questions a to h; those named in ``right`` are answered rightly."""
    return [played(name, "Ada" if name in right else "Bob", "ax", "yb") for name in "abcdefgh"]


def test_trajectories_show_gains_first_one_loss_and_honest_counts() -> None:
    shown = trajectories({"bm25": answered(""), "frozen": answered("ab"), "trained": answered("bcde")})
    assert shown["arms"] == ["frozen", "trained"]
    assert shown["counts"] == {"gained": 3, "lost": 1, "both_wrong": 3, "both_right": 1}
    assert [example["kind"] for example in shown["examples"]] == ["gained", "gained", "lost"]
    assert shown["examples"][2]["id"] == "a"
    wrong, right = answered(""), answered("abcdefgh")
    kinds = [example["kind"] for example in trajectories({"frozen": wrong, "trained": wrong}, count=2)["examples"]]
    assert kinds == ["both_wrong", "both_wrong"]
    drawn = [trajectories({"frozen": wrong, "trained": right}, 1, seed=seed)["examples"][0] for seed in range(20)]
    assert len({example["id"] for example in drawn}) > 2  # drawn at random, and by the seed alone:
    assert trajectories({"frozen": answered("a")}, seed=3) == trajectories({"frozen": answered("a")}, seed=3)


def test_a_trajectory_tells_what_was_asked_found_and_read() -> None:
    shown = trajectories({"frozen": [played("q", "Bob", "ax")], "trained": [played("q", "Ada", "ax", "b")]})
    (example,) = shown["examples"]
    assert (example["kind"], example["question"], example["gold_answers"]) == ("gained", "Who is q?", ["Ada"])
    trained = example["arms"]["trained"]
    assert (trained["answer"], trained["right"], example["arms"]["frozen"]["right"]) == ("Ada", True, False)
    assert trained["hops"][0] == {
        "sub_query": "q.0", "answer": "0", "status": "FOUND",
        "passages": [
            {"id": "a", "title": "A", "text": "text a", "is_gold": True},
            {"id": "x", "title": "X", "text": "text x", "is_gold": False},
        ],
    }  # fmt: skip
