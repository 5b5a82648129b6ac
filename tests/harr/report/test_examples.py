"""Which plays are shown side by side, and what is told of them."""

from episodes import played

from harr.report.examples import trajectories
from harr.types import Episode


def answered(right: str) -> list[Episode]:
    """Questions a to h; those named in ``right`` are answered rightly."""
    return [played(name, "Ada" if name in right else "Bob", "ax", "yb") for name in "abcdefgh"]


def test_trajectories_show_gains_first_one_loss_and_honest_counts() -> None:
    shown = trajectories({"bm25": answered(""), "frozen": answered("ab"), "full": answered("bcde")})
    assert shown["arms"] == ["frozen", "full"]
    assert shown["counts"] == {"gained": 3, "lost": 1, "both_wrong": 3, "both_right": 1}
    assert [example["kind"] for example in shown["examples"]] == ["gained", "gained", "lost"]
    assert shown["examples"][2]["id"] == "a"
    kinds = [e["kind"] for e in trajectories({"frozen": answered(""), "full": answered("")}, count=2)["examples"]]
    assert kinds == ["both_wrong", "both_wrong"]
    chosen = {
        trajectories({"frozen": answered(""), "full": answered("abcdefgh")}, 1, seed=s)["examples"][0]["id"]
        for s in range(20)
    }
    assert len(chosen) > 2  # drawn at random, and by the seed alone:
    assert trajectories({"frozen": answered("a")}, seed=3) == trajectories({"frozen": answered("a")}, seed=3)


def test_a_trajectory_tells_what_was_asked_found_and_read() -> None:
    example = trajectories({"frozen": [played("q", "Bob", "ax")], "full": [played("q", "Ada", "ax", "b")]})["examples"][
        0
    ]
    assert (example["kind"], example["question"], example["gold_answers"]) == ("gained", "Who is q?", ["Ada"])
    full = example["arms"]["full"]
    assert (full["answer"], full["right"], example["arms"]["frozen"]["right"]) == ("Ada", True, False)
    assert full["hops"][0] == {
        "sub_query": "q.0", "answer": "0", "status": "FOUND",
        "passages": [
            {"id": "a", "title": "A", "text": "text a", "is_gold": True},
            {"id": "x", "title": "X", "text": "text x", "is_gold": False},
        ],
    }  # fmt: skip


def test_without_answers_right_means_all_gold() -> None:
    shown = trajectories({"frozen": [played("q", None, "ax")], "full": [played("q", None, "ab")]})
    assert shown["counts"]["gained"] == 1 and "gold" in shown["right"]
