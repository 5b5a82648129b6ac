"""What is measured for the causes: leaks, false negatives, and queries that training should not harm."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from harr_diagnose.evidence import count_leaked, find_false_negatives, general_queries, recall_rows

from harr.corpus.passages import write_passages
from harr.types import Passage, Question, Retrieval, Search

GOLD = Passage("gold", "The old mill of Ashford was built by Acme in the year of the great flood.", "Mill")
TWIN = Passage("twin", "Acme built the old mill of Ashford in the year of the great flood, it was.", "Flour")
OTHER_YEAR = Passage("year", "The old mill of Ashford was built by Bolt in the year of the great flood.", "Lore")
SAYS = Passage("says", "Acme has its own canteen.", "Acme")
QUESTION = Question("q", "Who built the old mill?", ("Acme",), ("gold",))


class Fixed:
    """A retriever that finds these passages for everything."""

    def __init__(self, *passages: Passage) -> None:
        self.passages = passages
        self.depths: set[int] = set()

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        self.depths.update(search.k for search in searches)
        return [Retrieval(self.passages[: search.k]) for search in searches]


def share(question: Question, first: Fixed, second: Fixed | None = None, pool: int = 4) -> float | None:
    return find_false_negatives([Search(question, question.text)] * 2, first, second, pool)


@pytest.mark.parametrize(
    ("near", "ranked", "expected"),
    [
        ([GOLD, TWIN], None, 1.0),
        ([GOLD, OTHER_YEAR], None, 0.0),
        ([GOLD, SAYS], None, 0.0),
        ([GOLD, SAYS], [GOLD, SAYS], 0.0),
        ([GOLD, SAYS], [SAYS, GOLD], 1.0),
        ([GOLD, OTHER_YEAR], [OTHER_YEAR, GOLD], 0.0),
        ([GOLD], [SAYS, GOLD], 0.0),
    ],
)
def test_a_false_negative_states_the_answer_as_the_gold_does(
    near: list[Passage], ranked: list[Passage] | None, expected: float
) -> None:
    assert share(QUESTION, Fixed(*near), Fixed(*ranked) if ranked else None) == expected


def test_without_answers_only_a_copy_is_one() -> None:
    bare = Question("q", QUESTION.text, gold_ids=("gold",))
    assert share(bare, Fixed(GOLD, OTHER_YEAR), Fixed(SAYS, GOLD)) == 1.0
    assert share(bare, Fixed(GOLD, SAYS), Fixed(SAYS, GOLD)) == 0.0


def test_candidates_are_those_of_the_pool_and_a_question_counts_once() -> None:
    first = Fixed(GOLD, SAYS, TWIN)
    assert share(QUESTION, first, pool=2) == 0.0 and first.depths == {2}
    assert share(QUESTION, first, pool=3) == 1.0
    assert share(Question("q", "Who?", ("Acme",)), first) is None


def test_a_test_question_leaks_once() -> None:
    train = [Question("a", "Who built the old red mill of Ashford town?", ("Acme",)), Question("b", "Where is it?")]
    test = [
        Question("same", "who built the old red mill of Ashford town", ("Bolt",)),
        Question("near", "Who built the old red mill of Ashford town then?", ("acme",)),
        Question("answer", "Who built the old red mill of Ashford town then?", ("Bolt",)),
        Question("other", "Who sold the mill?", ("Acme",)),
    ]
    assert count_leaked(train, test) == 2


def test_general_queries_are_titles_of_their_own_or_first_sentences(tmp_path: Path) -> None:
    corpus = [
        Passage("a", "Ada was a poet. She died.", "Ada Brown"),
        Passage("b", "Acme makes mills. It is old.", "Acme"),
        Passage("c", "Acme was sold.", "Acme"),
        Passage("d", "No title has this. None."),
        Passage("away", "Not to be found.", "Away"),
    ]
    write_passages(corpus, tmp_path, searchable=lambda passage: passage.id != "away")
    queries = general_queries(tmp_path, 10, seed=0)
    assert {query.gold_ids[0]: query.text for query in queries} == {
        "a": "Ada Brown",
        "b": "Acme makes mills.",
        "c": "Acme was sold.",
        "d": "No title has this.",
    }
    drawn = [general_queries(tmp_path, 2, seed=seed) for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1] and any(one != drawn[0] for one in drawn) and len(drawn[0]) == 2


def test_recall_is_of_documents_among_the_first_k() -> None:
    chunks = [Passage("d_chunk_0", ""), Passage("e", ""), Passage("f", "")]
    asked = [Question("q", "Who?", gold_ids=("d_chunk_1", "f"))]
    assert [recall_rows(asked, Fixed(*chunks), k)[0]["recall"] for k in (1, 2, 3)] == [0.5, 0.5, 1.0]
