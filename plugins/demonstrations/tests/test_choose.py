"""What was played becomes demonstrations: only the best, only what was found, and as the learner would write it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from harr_demonstrations.choose import choose, rows_of
from letters import OnePassage

from harr.rag.pipelines.leret import LeReT
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.react import react_passages
from harr.rag.rollout import play
from harr.types import Episode, Generate, Outcome, Question, Retrieval, Search, Step, TruncatedCompletion, Turn

ASKED = Question("q", "Where was the founder of Acme born?", answers=("Ashford",))


def server(says: Any) -> Any:
    """A teacher whose completions lack the stop string, as a server's do."""

    def complete(requests: Sequence[Generate]) -> list[str]:
        replies = [says(request) for request in requests]
        cut = [request.cut(text) for request, text in zip(requests, replies, strict=True)]
        return [one if isinstance(one, TruncatedCompletion) else two for one, two in zip(replies, cut, strict=True)]

    return SimpleNamespace(complete=complete)


def teaches(*replies: str) -> Any:
    """A teacher that says these, one after the other."""
    left = list(replies)
    return server(lambda request: left.pop(0))


def test_the_learner_is_asked_in_its_own_way() -> None:
    turns = [Turn(Generate(prompt="Plan.\nWho?\n<think>", stop=("</answer>",)), "so</think><answer>Ada")]
    episode = Episode(ASKED, turns=tuple(turns))
    assert rows_of(episode, "<user>Who?<model>") == [
        {"pieces": [("<user>Who?<model>", False), ("<think>so</think><answer>Ada</answer>", True)]}
    ]
    turns = [Turn(Generate(prompt="Who?", stop=("</answer>",)), "<think>so</think><answer>Ada")]
    pieces = rows_of(Episode(ASKED, turns=tuple(turns)), "Who?<think>\n")[0]["pieces"]
    assert pieces == [("Who?<think>\n", False), ("so</think><answer>Ada</answer>", True)]


def test_a_conversation_keeps_what_the_environment_says() -> None:
    """The note that searches are over, say, which a demonstration by hand would lack."""
    call = '<think>x</think><tool_call>{"name": "search", "arguments": {"query": "xyz"}}'
    teacher = teaches(call, "<think>y</think>Final answer: Bath")
    [episode] = play([ASKED], lambda asked: react_passages(asked, max_searches=1), OnePassage(), teacher)
    [row] = rows_of(episode)
    assert [one["role"] for one in row["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert (
        row["messages"][2]["content"] == f"{call}</tool_call>" and "No more searches" in row["messages"][3]["content"]
    )
    assert row["messages"][4]["content"] == "<think>y</think>Final answer: Bath"


def test_requests_that_do_not_grow_are_rows_of_their_own() -> None:
    plan, read = '{"action": "ASK", "sub_query": "xyz"}', '{"status": "FOUND", "answer": "Bath"}'
    said = [plan, read, '{"action": "STOP"}', "Bath"]
    [episode] = play([ASKED], lambda asked: multistep(asked, max_hops=2), OnePassage(), teaches(*said))
    assert [row["messages"][-1]["content"] for row in rows_of(episode)] == said


def test_a_later_search_of_raw_text_is_taught_with_what_was_found_before() -> None:
    pipeline = LeReT(hops=2, template="plain")
    [episode] = play([ASKED], pipeline, OnePassage(), teaches(" founder of Acme", " Ada Brown born"))
    first, second = rows_of(episode, "Who? Query:")
    assert first["pieces"][0] == ("Who? Query:", False)
    assert second["pieces"][0] == (episode.turns[1].request.prompt, False)


def episode_of(*said: str, question: Question = ASKED, shows: Sequence[str] = (), **outcome: Any) -> Episode:
    """An episode with a search, in which the model says these."""
    parts = ["Who?", *shows, *[""] * len(said)]
    turns = [Turn(Generate(prompt=" ".join(parts[: n + 1])), text) for n, text in enumerate(said)]
    return Episode(question, (Step(Search(question, "x"), Retrieval(())),), Outcome("Ashford", **outcome), tuple(turns))


def chosen(*episodes: Episode, rewards: Sequence[float | None], **options: Any) -> tuple[list[Episode], dict[str, int]]:
    choice = choose(episodes, rewards, **{"at_least": 0.5, "each": 1, "hidden": frozenset()} | options)
    return [episode for episode, _ in choice.kept], dict(choice.dropped)


def test_the_best_of_a_question_is_kept_and_of_equals_the_shortest() -> None:
    long, short, better = (episode_of(text, "Ashford", shows=("Ashford",)) for text in ("she is", "she", "her town"))
    assert chosen(long, short, rewards=[0.8, 0.8]) == ([short], {"others of their question are better": 1})
    assert chosen(long, short, better, rewards=[0.8, 0.8, 0.9], each=2)[0] == [better, short]
    assert chosen(short, short, rewards=[0.8, 0.8], each=2) == ([short], {"duplicates": 1})


def test_what_is_not_worth_learning_is_dropped_with_its_reason() -> None:
    fine = episode_of("x", "Ashford", shows=("Ashford",))
    assert chosen(fine, fine, rewards=[0.4, None]) == ([], {"reward": 2})
    hidden = frozenset([ASKED.identity])
    assert chosen(fine, rewards=[1.0], hidden=hidden)[1] == {"leaks: a question of validation or test": 1}
    cut = Turn(Generate(prompt="Who?", stop=("</answer>",)), TruncatedCompletion("<answer>Ash"))
    for episode, reasons in (
        (episode_of("Ashford it is", "Ashford"), {"leaks: the answer before it was found": 1}),
        (episode_of("x", "Ashford"), {}),  # the last turn answers
        (episode_of("x", malformed=1), {"form": 1}),
        (Episode(ASKED, turns=fine.turns, outcome=fine.outcome), {"no search": 1}),
        (Episode(ASKED, fine.steps, fine.outcome, (cut,)), {"form": 1}),
    ):
        assert chosen(episode, rewards=[1.0])[1] == reasons
