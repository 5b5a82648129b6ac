"""State texts: all styles, the published format, and a token budget that never cuts the query."""

from dataclasses import replace
from pathlib import Path

import pytest

from harr.builders.trained import conversation
from harr.embed.encoder import Encoder
from harr.params import Params
from harr.rag.policies.state import StateFormat, state_text
from harr.types import Hop, Question, Search, Shortened

RECIPES = Path(__file__).parents[4] / "recipes"
QUESTION = Question("q", "Where was the founder of Acme born?")
HOPS = (Hop("one two", "three", "FOUND"), Hop("four", "five six"))
PROMPT = "Instruct: Given a long question, find what answers the current hop\n"
LONG = "Which of the many rivers of the county, " * 60 + "is the longest?"


@pytest.fixture(scope="module")
def encoder(tiny: str) -> Encoder:
    return Encoder(tiny, max_tokens=64)


def read(encoder: Encoder, text: str, limit: int = 64) -> str:
    """Return what the model reads of a state, token by token, as text."""
    encoder.limit(limit)
    (ids,) = encoder.token_ids([text], prompt=PROMPT)
    return str(encoder.model.tokenizer.decode(ids, skip_special_tokens=False))


def test_sep_style_joins_question_and_picks() -> None:
    search = Search(QUESTION, QUESTION.text, (Hop("", "Acme: a firm."),))
    assert state_text(search, style="sep", history=True) == f"{QUESTION.text} [SEP] Acme: a firm."
    assert state_text(search, style="sep", history=False) == QUESTION.text


def test_sep_style_keeps_the_topic_of_a_conversation(encoder: Encoder) -> None:
    """A follow-up shows the previous question and the short reply; nothing appears twice."""
    question, past = conversation(
        [("user", "Does broccoli protect?"), ("assistant", "Yes."), ("user", "And what about coffee?")]
    )
    search = Search(Question("", question), question, tuple(Hop(*turn) for turn in past))
    text = "And what about coffee? [SEP] Does broccoli protect? Yes."
    assert state_text(search, style="sep", history=True) == text
    assert StateFormat("sep", True, 64).texts([search], encoder)[0] == [text]
    rewritten = replace(search, query="coffee and cancer")
    assert state_text(rewritten, style="sep", history=True) == text.replace("And", "coffee and cancer [SEP] And")
    (short,), (lost,) = StateFormat("sep", True, 8).texts([search], encoder)
    assert short == "And what about coffee?" and lost.dropped == 1 and not (lost.question or lost.query)
    (cut,), (lost,) = StateFormat("sep", True, 32).texts([Search(Question("", LONG), "rivers")], encoder)
    assert cut.startswith("rivers [SEP] Which of") and cut.endswith("longest?") and " ... " in cut and lost.question
    assert "\nHistory: []\n" in state_text(Search(QUESTION, "Who?"), style="json", history=True)


def test_lines_hold_what_json_holds_but_statuses_in_fewer_tokens(encoder: Encoder) -> None:
    search = Search(QUESTION, "Where was she born?", (*HOPS, Hop("seven", "", "NOT_FOUND")))
    lines, json = (state_text(search, style=style, history=True) for style in ("lines", "json"))
    query = "Query: Where was she born?"
    assert lines.splitlines() == [QUESTION.text, "one two three", "four five six", "seven unknown", query]
    assert state_text(search, style="lines", history=False) == query
    tokens, json_tokens = encoder.token_counts([lines, json], prompt="")
    assert tokens < 0.5 * json_tokens
    (short,), (lost,) = StateFormat("lines", True, int(tokens) - 1).texts([search], encoder)
    assert lost == Shortened(dropped=1)
    assert "three" not in short and short.endswith(query)


THOUGHT = "Ada Brown founded Acme in 1902, so I look for the town where she was born."


def test_a_thought_stands_between_question_and_query_and_no_hop_does() -> None:
    search = Search(QUESTION, "Where was she born?", HOPS, thought=THOUGHT)
    asked, query = f"Original Question: {QUESTION.text}\n", "Query: Where was she born?"
    assert state_text(search, style="thought", history=True) == f"{asked}Reasoning: {THOUGHT}\n{query}"
    assert state_text(replace(search, thought=""), style="thought", history=True) == f"{asked}{query}"
    assert state_text(search, style="thought", history=False) == query
    for style in ("json", "lines", "sep"):
        assert "1902" not in state_text(search, style=style, history=True)


def test_of_a_long_thought_the_end_is_read_then_none_then_less_of_the_question(encoder: Encoder) -> None:
    """By token ids, at every limit: the query is whole, and so is the question while any of the thought is left."""
    search = Search(QUESTION, "Where was she born?", HOPS, thought=THOUGHT)
    full = state_text(search, style="thought", history=True)
    bare = state_text(replace(search, thought=""), style="thought", history=True)
    whole, without = map(int, encoder.token_counts([full, bare], prompt=PROMPT))
    assert StateFormat("thought", True, whole, PROMPT).texts([search], encoder) == ([full], [Shortened()])
    for limit in range(24, whole):
        (text,), (lost,) = StateFormat("thought", True, limit, PROMPT).texts([search], encoder)
        assert lost == Shortened(thought_cut=True, question=limit < without)
        (length,) = encoder.token_counts([text], prompt=PROMPT)
        assert length <= limit and read(encoder, text, limit).endswith("query : where was she born? [SEP]")
        first, *middle, _ = text.splitlines() if limit >= without else ("", "")
        if middle:
            assert first == f"Original Question: {QUESTION.text}", "the thought is cut before the question"
            assert THOUGHT.endswith(middle[0].removeprefix("Reasoning: ... ")), "its end leads to the query"
            assert length >= limit - 4, "as much of it as has room"
        elif limit >= without:
            assert text == bare and limit < without + 10, "no room for a thought"


def test_the_oldest_hop_goes_first_and_the_query_stays(encoder: Encoder) -> None:
    search = Search(QUESTION, "Where was she born?", HOPS)
    full = state_text(search, style="json", history=True)
    limit = int(encoder.token_counts([full], prompt=PROMPT)[0])
    (text,), (lost,) = StateFormat("json", True, limit, PROMPT).texts([search], encoder)
    assert text == full and lost == Shortened()
    (text,), (lost,) = StateFormat("json", True, limit - 1, PROMPT).texts([search], encoder)
    assert lost == Shortened(dropped=1), "the prompt counts"
    assert "three" not in text and "five six" in text
    assert read(encoder, text).endswith("query : where was she born? [SEP]")


def test_a_long_history_is_not_read_again_for_every_hop_that_goes(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chat of hundreds of hops would otherwise block a server for minutes."""
    hops = tuple(Hop(f"where is {number}", "here " * (number % 5), "FOUND") for number in range(100))
    kept = [state_text(Search(QUESTION, "Who?", hops[dropped:]), style="json", history=True) for dropped in range(101)]
    fits = [length <= 200 for length in encoder.token_counts(kept, prompt=PROMPT)]
    read, count = list[str](), encoder.token_counts
    monkeypatch.setattr(
        encoder, "token_counts", lambda texts, prompt: (read.extend(texts), count(texts, prompt=prompt))[1]
    )
    (text,), (lost,) = StateFormat("json", True, 200, PROMPT).texts([Search(QUESTION, "Who?", hops)], encoder)
    assert text == kept[lost.dropped] and lost.dropped == fits.index(True) < 100
    assert sum(map(len, read)) < 3 * len(kept[0])


@pytest.mark.parametrize("limit", [24, 30, 64])
def test_the_current_query_is_read_whole_whatever_is_cut(encoder: Encoder, limit: int) -> None:
    """By token ids: prompt and state may exceed the limit, and the encoder cuts the excess."""
    for question in (QUESTION.text, LONG, "mill-" * 400):
        asked = [Search(Question("q", question), query, HOPS) for query in ("Where was she born?", "Who is her son?")]
        texts, lost = StateFormat("json", True, limit, PROMPT).texts(asked, encoder)
        assert max(encoder.token_counts(texts, prompt=PROMPT)) <= limit
        for text, query in zip(texts, ("where was she born?", "who is her son?"), strict=True):
            assert read(encoder, text, limit).endswith(f"query : {query} [SEP]")
        one, two = encoder.encode(texts, prompt=PROMPT)
        assert one @ two < 0.999, "states with other queries have other vectors"
        assert all(own.question == (limit < 64 or question != QUESTION.text) for own in lost)


def test_of_a_long_question_both_ends_are_read_and_a_long_query_is_whole_and_counted(encoder: Encoder) -> None:
    search = Search(Question("q", LONG), "Who?", HOPS)
    (text,), (lost,) = StateFormat("json", True, 60, PROMPT).texts([search], encoder)
    assert text.startswith("Original Question: Which of the many")
    assert text.endswith("is the longest?\nHistory: []\nQuery: Who?")
    assert " ... " in text and lost == Shortened(dropped=2, question=True)
    assert encoder.token_counts([text], prompt=PROMPT)[0] > 50, "as much of it as has room"
    for style, history in (("json", True), ("json", False), ("sep", True)):
        format_ = StateFormat(style, history, 30, PROMPT)
        (text,), (lost,) = format_.texts([Search(QUESTION, LONG, HOPS)], encoder)
        assert lost.query and text.removeprefix("Query: ") == LONG


def test_picks_are_cut_each_and_not_dropped(encoder: Encoder) -> None:
    picks = tuple(Hop("", f"{name}: {'a long text ' * 30}") for name in ("Rome", "Ada"))
    search = Search(QUESTION, QUESTION.text, picks)
    (text,), (lost,) = StateFormat("sep", True, 64).texts([search], encoder)
    assert lost == Shortened(dropped=2) and text == QUESTION.text
    (text,), (lost,) = StateFormat("sep", True, 64, pick_tokens=12).texts([search], encoder)
    assert lost == Shortened()
    assert text == f"{QUESTION.text} [SEP] Rome: {'a long text ' * 3}a [SEP] Ada: {'a long text ' * 3}a"
    assert encoder.cut(["Ada", "two words"], 1) == ["Ada", "two"]


STATEFUL = (
    "Given the original question, the finished hops and the current hop, retrieve passages that answer the current hop"
)
PLAIN = "Given a web search query, retrieve relevant passages that answer the query"


def test_arms_with_and_without_history_read_the_published_format(tiny: str) -> None:
    """Whole strings of HARR (arXiv 2602.03645): "Instruct: {}\\n{}", three labelled lines, or only the query."""
    search = Search(QUESTION, "Where was she born?", (Hop("Who founded Acme?", "Ada Brown", "FOUND"),))
    for recipe in ("harr_wiki18_0.6b", "harr_search_r1"):
        params = Params.load(RECIPES / f"{recipe}.yaml")
        prompts = {"query_prompt": params.encoder.query_prompt, "plain_prompt": params.encoder.plain_prompt}
        reader = Encoder(tiny, max_tokens=128, **prompts)
        seen = {}
        for history, prompt in ((True, reader.query_prompt), (False, reader.plain_prompt)):
            (text,), _ = StateFormat(params.retriever.state, history, 128, prompt).texts([search], reader)
            seen[history] = prompt + text
        assert seen[False] == f"Instruct: {PLAIN}\nQuery: Where was she born?"
        assert seen[True] == (
            f"Instruct: {STATEFUL}\nOriginal Question: Where was the founder of Acme born?\n"
            'History: [{"sub_query": "Who founded Acme?", "status": "FOUND", "answer": "Ada Brown"}]\n'
            "Query: Where was she born?"
        )
