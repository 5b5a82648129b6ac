"""What untrained play measures: gold at every depth, ambiguous queries, and the gain that n questions can show."""

from collections.abc import Sequence

import numpy as np
from harr_diagnose.measure import DeepRetriever, all_gold_at, ambiguous_queries, detectable_gain

from harr.types import Episode, Hop, Passage, Question, Retrieval, Search, Step


class Ranked:
    """A retriever that finds p0, p1, ... for everything, as many as it is asked for."""

    def __init__(self, asked: list[int] | None = None) -> None:
        self.asked = [] if asked is None else asked

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        self.asked += [search.k for search in searches]
        return [Retrieval(tuple(Passage(f"p{n}", "") for n in range(search.k))) for search in searches]


def test_a_deep_retriever_notes_every_depth_and_hands_on_what_was_asked_for() -> None:
    deep, question = DeepRetriever(Ranked(), (1, 4)), Question("q", "Who?")
    found = deep.retrieve([Search(question, "who", k=2), Search(question, "who", k=6)])
    assert [len(one.passages) for one in found] == [2, 6]
    noted = {"q": {1: {"p0"}, 4: {"p0", "p1", "p2", "p3"}}}
    assert deep.found == noted
    asked: list[int] = []
    once = DeepRetriever(Ranked(asked), (1, 4), once=True)
    once.retrieve([Search(question, "who", k=2)])
    assert (once.found, asked) == (noted, [4, 2])


def episode(name: str, later: str, gold: str) -> Episode:
    question = Question(name, "Who?", gold_ids=("first", gold))
    hops = (Hop("Who was first?", "Ada"),)
    first = Step(Search(question, "Who was first?"), Retrieval(()))
    return Episode(question, (first, Step(Search(question, later, hops), Retrieval(()))))


def test_a_later_query_is_ambiguous_where_its_words_seek_other_gold_elsewhere() -> None:
    episodes = [
        episode("a", "Where was she born?", "p1"),
        episode("b", "where was  she born?", "p2"),
        episode("c", "Where was Ada born?", "p3"),
        episode("d", "Where was Ada born?", "p3"),
    ]
    assert ambiguous_queries(episodes) == {"later_queries": 4.0, "ambiguous_share": 0.5}
    assert ambiguous_queries([])["ambiguous_share"] == 0.0
    picks = [episode("a", "Who?", "p1"), episode("b", "Who?", "p2")]  # every search is for the question
    assert ambiguous_queries(picks) == {"later_queries": 0.0, "ambiguous_share": 0.0}


def test_the_detectable_gain_is_found_in_8_of_10_samples() -> None:
    rng = np.random.default_rng(0)
    n, spread = 400, np.array([1.0, 0.0, 0.0, -1.0])
    gain = detectable_gain(spread.tolist(), n)
    samples = rng.choice(spread, size=(4000, n)) + gain
    z = samples.mean(1) / (samples.std(1) / np.sqrt(n))
    assert 0.77 < (z > 1.96).mean() < 0.83


def test_of_much_gold_the_share_is_returned() -> None:
    question = Question("q", "Why?", gold_ids=("a", "b", "c", "d"))
    found = {"q": {1: {"a"}, 4: {"a", "x", "b", "c"}}}
    assert [all_gold_at([question], found, depth, by_share=True) for depth in (1, 4)] == [[("q", 0.25)], [("q", 0.75)]]
    assert all_gold_at([question], found, 4) == [("q", 0.0)]
