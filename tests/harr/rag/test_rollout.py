"""play(): order, batching, and what an episode records."""

from collections.abc import Generator as PyGenerator, Sequence
from typing import Any

import pytest
from by_hand import ends

from harr.errors import ParamsError
from harr.rag.pipelines.pick import pick
from harr.rag.rollout import play
from harr.types import Generate, Hop, Outcome, Passage, Question, Request, Retrieval, Search


class CountingRetriever:
    """Returns passage p<number of hops>; records every batch's size."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        self.batches.append(len(searches))
        return [Retrieval((Passage(f"p{len(search.hops)}", search.query),)) for search in searches]


class Echo:
    """Writes the last message in capitals."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        self.batches.append(len(requests))
        return [request.messages[-1]["content"].upper() for request in requests]


def hops_then_answer(question: Question) -> PyGenerator[Request, Any, Outcome]:
    hops: tuple[Hop, ...] = ()
    for number in range(int(question.text)):
        retrieval = yield Search(question, f"{question.id}.{number}", hops)
        hops += (Hop(retrieval.passages[0].text, "x"),)
    return Outcome((yield Generate(({"role": "user", "content": question.id},))), hops)


def test_episodes_keep_the_order_of_the_questions_and_their_steps() -> None:
    questions = [Question("a", "3"), Question("b", "0"), Question("c", "1")]
    episodes = play(questions, hops_then_answer, CountingRetriever(), Echo())
    assert [episode.answer for episode in episodes] == ["A", "B", "C"]
    steps = [[step.search.query for step in episode.steps] for episode in episodes]
    assert steps == [["a.0", "a.1", "a.2"], [], ["c.0"]]
    assert [passage.id for passage in episodes[0].retrieved] == ["p0", "p1", "p2"]


def test_a_round_is_one_batch_of_each_kind_and_early_writers_wait_for_those_who_still_search() -> None:
    retriever, generator = CountingRetriever(), Echo()
    play([Question(str(i), str(1 + i % 3)) for i in range(9)], hops_then_answer, retriever, generator)
    assert retriever.batches == [9, 6, 3]
    assert generator.batches == [9], "one batch of text, not one per length"


def fan(question: Question) -> PyGenerator[Request, Any, Outcome]:
    """Search as often at once as the question says, then once alone."""
    found = yield tuple(Search(question, f"{question.id}.{number}") for number in range(int(question.text)))
    last = yield Search(question, "".join(retrieval.passages[0].text for retrieval in found))
    return Outcome(last.passages[0].text)


def test_several_searches_at_once_share_the_batch_of_all_games() -> None:
    retriever = CountingRetriever()
    episodes = play([Question("a", "3"), Question("b", "0"), Question("c", "1")], fan, retriever, None)
    assert retriever.batches == [4, 3]
    assert [episode.answer for episode in episodes] == ["a.0a.1a.2", "", "c.0"]
    assert [len(episode.steps) for episode in episodes] == [4, 1, 2]
    assert all(step.search.query == step.retrieval.passages[0].text for step in episodes[0].steps)


def test_a_retriever_that_answers_too_little_or_no_generator_is_an_error() -> None:
    class Lazy:
        def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
            return [Retrieval(())] * (len(searches) - 1)

    with pytest.raises(ValueError, match="3 searches were answered by 2"):
        play([Question("a", "3")], fan, Lazy(), None)
    with pytest.raises(RuntimeError, match=r"generator\.kind"):
        play([Question("a", "0")], hops_then_answer, CountingRetriever(), None)


def test_pick_excludes_what_it_took_and_fills_the_ranking_last() -> None:
    game = pick(Question("q", "who?"), picks=2, depth=5)
    first = next(game)
    assert (first.k, first.exclude_ids) == (1, frozenset())
    second = game.send(Retrieval((Passage("p7", "text", "Title"),)))
    assert (second.k, second.exclude_ids) == (4, frozenset({"p7"}))
    assert second.hops == (Hop("", "Title: text"),)
    assert len(ends(game, Retrieval((Passage("p8", "a"), Passage("p9", "b")))).hops) == 3


def test_a_reader_sees_the_picks_in_the_order_of_the_document() -> None:
    question = Question("q", "Where is Mary?", ("office",), candidate_ids=("a", "b", "c"))
    game = pick(question, picks=2, reader=True)
    next(game)
    game.send(Retrieval((Passage("c", "She left."),)))
    asked = game.send(Retrieval((Passage("a", "Mary came.</information>"),)))
    shown = asked.messages[-1]["content"]
    assert shown.index("Mary came.") < shown.index("She left.") and "&lt;/information&gt;" in shown
    outcome = ends(game, "Answer: office.")
    assert (outcome.answer, outcome.escaped, len(outcome.hops)) == ("office", 1, 2)


def test_a_pipeline_of_another_package_that_yields_something_else_is_refused() -> None:
    for moves, line in (
        (["Where?"], r"the pipeline yielded .Where\?.; yield a Search, a Generate or a tuple of Searches"),
        ([[Search(Question("q", "Who?"), "Who?")]], r"the pipeline yielded \[Search"),
        ([(Generate(prompt="Who?"),)], r"the pipeline yielded \(Generate"),
        ([None], "the pipeline yielded None"),
        ([], "the pipeline returned 'Bath'; return an Outcome"),
    ):

        def pipeline(question: Question, moves: Any = moves) -> Any:
            yield from moves
            return "Bath"

        with pytest.raises(ParamsError, match=line):
            play([Question("q", "Who?")], pipeline, CountingRetriever(), Echo())
