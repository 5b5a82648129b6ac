"""What LeReT learns is whole, whatever the passages, the queries and the limits."""

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from letters import save_letters

from harr.errors import CorpusError
from harr.rag.generation.local_model import LanguageModel, load_model
from harr.rag.pipelines.leret import LeReT, query_of, render, request
from harr.train.leret import pairs, targets
from harr.types import Passage, Question

TEXT = st.lists(st.text(string.printable, min_size=3, max_size=12), max_size=12).map(" ".join)
PASSAGES = st.lists(st.builds(Passage, st.just("p"), TEXT, TEXT), max_size=6)
QUERIES = st.lists(TEXT.map(query_of).filter(bool), min_size=2, max_size=4, unique=True)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: Any) -> LanguageModel:
    """A model that has a token for every character."""
    folder: Path = save_letters(tmp_path_factory.mktemp("whole") / "letters", spread=0.3, printable=True)
    return LanguageModel(*load_model(str(folder)), name="letters")


def text_of(writer: LanguageModel, ids: list[int]) -> str:
    """Every token as it stands; the one that ends a turn as <eos>."""
    return "".join(writer.tokenizer.convert_ids_to_tokens(ids))


@settings(max_examples=100, deadline=None)
@given(
    asked=TEXT,
    context=PASSAGES,
    queries=QUERIES,
    template=st.sampled_from(["bare", "plain", "chatml", "chat"]),
    limit=st.integers(0, 600),
    room=st.integers(100, 1500),
)
def test_no_query_is_cut_and_a_prompt_loses_its_last_passages_only(
    writer: LanguageModel, asked: str, context: list[Passage], queries: list[str], template: str, limit: int, room: int
) -> None:
    program = LeReT(2, template=template, fits=lambda text: len(writer.tokenizer(text)["input_ids"]) <= limit)
    prompt = program.prompt(Question("q", asked), context)[0]
    kept = sum(line.startswith("Doc ") for line in prompt.splitlines())
    assert prompt == render(asked, context[:kept])[0]
    assert kept == 0 or len(prompt) <= limit
    assert kept == len(context) or len(render(asked, context[: kept + 1])[0]) > limit

    last = len(queries) - 1
    row = {"id": "q/1", "prompt": prompt, "responses": queries, "pairs": [[last, 0]], "sft_target": queries[last]}
    read = writer.render(request(prompt, template))
    line = template in ("bare", "plain")
    told = [f" {query}\n" if line else f"{query}<eos>" for query in queries]
    tokens = len(read) + max(map(len, queries)) + (2 if line else 1)
    writer.room = room
    if tokens > room:  # an error, rather than less
        with pytest.raises(CorpusError, match="prompt q/1 and its query have"):
            pairs(writer, [row], template)
        return
    ((ids, own),) = targets(writer, [row], template)
    assert text_of(writer, ids) == read + told[last]
    assert text_of(writer, [one for one, learnt in zip(ids, own, strict=True) if learnt]) == told[last]
    assert own == sorted(own)  # the prompt comes first
    (pair,) = pairs(writer, [row], template)
    found = [text_of(writer, pair[name]) for name in ("prompt_ids", "chosen_ids", "rejected_ids")]
    assert found == [read, told[last], told[0]]
