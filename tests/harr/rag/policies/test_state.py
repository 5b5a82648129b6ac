"""State texts: both styles, and the token budget."""

from collections.abc import Sequence

import numpy as np

from harr.rag.policies.state import state_text, state_texts
from harr.types import Hop, Question, Search

QUESTION = Question("q", "Where was the founder of Acme born?")
HOPS = (Hop("one two", "three", "FOUND"), Hop("four", "five six"))


def words(texts: Sequence[str]) -> np.ndarray:
    return np.array([len(text.split()) for text in texts])


def test_sep_style_joins_question_and_picks() -> None:
    search = Search(QUESTION, QUESTION.text, (Hop("", "Acme: a firm."),))
    assert state_text(search, style="sep", history=True) == f"{QUESTION.text} [SEP] Acme: a firm."
    assert state_text(search, style="sep", history=False) == QUESTION.text


def test_an_empty_history_is_an_empty_list() -> None:
    assert "\nHistory: []\n" in state_text(Search(QUESTION, "Who?"), style="json", history=True)


def test_the_oldest_hop_goes_first_and_the_query_stays() -> None:
    search = Search(QUESTION, "Where was she born?", HOPS)
    full = state_text(search, style="json", history=True)
    (text,), dropped = state_texts(
        [search], style="json", history=True, max_tokens=len(full.split()) - 1, token_counts=words
    )
    assert dropped == 1
    assert "three" not in text and "five six" in text
    assert text.endswith("Query: Where was she born?")


def test_a_question_over_the_limit_keeps_its_query_and_ends() -> None:
    (text,), dropped = state_texts(
        [Search(QUESTION, "Who?", HOPS)], style="json", history=True, max_tokens=1, token_counts=words
    )
    assert dropped == 2
    assert text.endswith("Query: Who?")
