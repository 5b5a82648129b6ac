"""The code on a model card writes the state that the card shows."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import harr
from harr.merge.card import plain_name, usage


@pytest.mark.parametrize("pipeline", ["pick", "harr"])
@pytest.mark.parametrize("style", ["json", "lines", "sep", "thought"])
def test_the_code_of_a_card_writes_the_state_that_it_shows(style: str, pipeline: str) -> None:
    facts = {"retriever": {"state": style, "max_tokens": 64}, "history": True, "statuses": True, "towers": "query"}
    facts |= {"base_model": "base", "pipeline": pipeline}
    called, shown = (re.search(x, usage(facts), re.DOTALL) for x in (r"harr\.state\((.*?)\n\)", r"```text\n(.*?)\n```"))
    assert called and shown
    model = SimpleNamespace(tokenizer=None, prompts={"query": ""})
    assert eval(f"harr.state({called[1]})", {"harr": harr, "model": model}) == shown[1]
    queried = "she born" in shown[1]
    assert queried is (style != "sep" or pipeline != "pick"), "who picks is asked the question itself"


def test_a_folder_with_one_slash_is_no_name_of_the_hub(workplace: Path) -> None:
    assert plain_name("models/generator") == "models/generator"
    Path("models/generator").mkdir(parents=True)
    assert plain_name("models/generator") == "generator"
