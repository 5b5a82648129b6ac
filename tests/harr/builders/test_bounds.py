"""The arms that bound all others: one finds the gold, one finds nothing."""

from dataclasses import replace
from pathlib import Path

from stages import world_params

from harr.arms import ARMS
from harr.builders.players import open_players
from harr.corpus.passages import read_questions
from harr.types import Hop, Search
from tasks.paths import PLACES, QUESTIONS


def test_gold_is_found_first_and_nothing_is_found(place: Path, tiny: str) -> None:
    params = world_params(tiny)
    questions = read_questions(QUESTIONS / "test.jsonl")[:8]
    searches = [Search(question, question.text, k=4) for question in questions]
    with open_players(params, PLACES, questions, candidates="corpus") as player:
        frozen, gold, empty = (player(ARMS[name], None) for name in ("frozen", "gold", "nothing"))
        others = frozen.retrieve(searches)
        for search, retrieval, other in zip(searches, gold.retrieve(searches), others, strict=True):
            ids, wanted = [passage.id for passage in retrieval.passages], search.question.gold_ids
            rest = [passage.id for passage in other.passages if passage.id not in wanted]
            assert ids == [*wanted, *rest][:4]
        (retrieval,) = gold.retrieve([replace(searches[0], exclude_ids=frozenset(searches[0].question.gold_ids))])
        assert retrieval.passages and not set(searches[0].question.gold_ids) & {p.id for p in retrieval.passages}
        two = next(search for search in searches if len(search.question.gold_ids) == 2)
        hops = [replace(two, k=1, hops=(Hop("", ""),) * count) for count in range(3)]
        found = [passage.id for retrieval in gold.retrieve(hops) for passage in retrieval.passages]
        assert found == [*two.question.gold_ids, two.question.gold_ids[0]], "one gold passage a hop"
        assert not any(retrieval.passages for retrieval in empty.retrieve(searches))
    assert ARMS["gold"].ceiling and not ARMS["nothing"].can_be_served
