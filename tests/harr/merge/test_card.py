"""The code of a model card writes the state that the card shows."""

import re

import pytest

import harr
from harr.merge.card import example_state, usage


@pytest.mark.parametrize("pipeline", ["pick", "harr"])
@pytest.mark.parametrize("style", ["json", "lines", "sep", "thought"])
def test_the_code_of_a_card_writes_the_state_that_it_shows(style: str, pipeline: str) -> None:
    facts = {"retriever": {"state": style, "max_tokens": 64}, "history": True, "statuses": True, "towers": "query"}
    facts |= {"base_model": "base", "pipeline": pipeline}
    called = re.search(r"harr\.state\((.*?)\n\)", usage(facts), re.DOTALL)
    assert called
    arguments = called[1].replace("tokenizer=model.tokenizer", "tokenizer=None")
    assert eval(f"harr.state({arguments})", {"harr": harr}) == example_state(facts)
    queried = "she born" in example_state(facts)
    assert queried is (style != "sep" or pipeline != "pick"), "who picks is asked the question itself"
