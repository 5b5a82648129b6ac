"""Cutting by the tokens of a real tokeniser: nothing is lost, nothing is too long."""

import re

import pytest
from harr_documents.chunks import chunks
from harr_documents.tokens import token_spans
from hypothesis import given, settings, strategies as st
from tiny import tiny_encoder

from harr.errors import ModelError

SPANS = token_spans(tiny_encoder())
WORDS = st.sampled_from(
    ["flu", "is", "a", "virus.", "Take", "2.5", "mg", "daily.", "Zoë's", "hyperlipoproteinaemia", "x" * 60]
)


@settings(deadline=None, max_examples=80)
@given(words=st.lists(WORDS, max_size=120), limit=st.integers(8, 40), header=st.sampled_from(["", "Flu: Disease\n\n"]))
def test_parts_are_the_text_and_fit(words: list[str], limit: int, header: str) -> None:
    text = " ".join(words)
    parts = list(chunks(text, SPANS, limit, header=header))
    assert "".join("".join(parts).split()) == "".join(text.split())
    for part in parts:
        assert len(SPANS(header + part)) <= max(limit, len(SPANS(header)) + 1)


def test_a_part_ends_at_the_last_full_stop_that_fits() -> None:
    text = "The dose is 2.5 mg. It is taken daily. Ask your doctor before you take more of it than that."
    assert list(chunks(text, SPANS, 16)) == [
        "The dose is 2.5 mg. It is taken daily.",
        "Ask your doctor before you take more of it than that.",
    ]
    # the full stop within 2.5 ends nothing; without one that fits it is cut between words
    assert list(chunks("The dose is 2.5 mg of it every other day", SPANS, 6)) == [
        "The dose is 2.5",
        "mg of it every other day",
    ]
    # other scripts have a full stop of their own, and no space behind it
    assert list(chunks("你好。天气很好。我要去北京。", SPANS, 12)) == ["你好。天气很好。", "我要去北京。"]
    assert list(chunks(" \n\t ", SPANS, 16)) == list(chunks("", SPANS, 16)) == []


def test_one_endless_word_is_cut_between_tokens() -> None:
    """The word has less than 100 letters: longer ones are one unknown token to this tokeniser, and stay whole."""
    parts = list(chunks("ab" * 48, SPANS, 8))
    assert "".join(parts) == "ab" * 48 and len(parts) > 3
    assert all(len(SPANS(part)) <= 8 for part in parts)


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(ModelError, match=re.escape("model folder ./nowhere does not exist")):
        token_spans("./nowhere")
