"""`harr ask`: what it prints, and what it refuses before anything is loaded."""

from pathlib import Path

import pytest
import yaml
from harr_local.ask import as_json, ask, find_model, lines

from harr.errors import ModelError, ParamsError
from harr.params import Params
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step
from tasks.paths import ADAPTER, LANGUAGE_MODEL, RETRIEVER

ASKED = Question("asked", "Where was the founder of Acme born?")
STEPS = (
    Step(Search(ASKED, "founder of Acme"), Retrieval((Passage("p7", "Ada  Brown\nfounded it. " + "x" * 300, "Acme"),))),
    Step(Search(ASKED, "Ada Brown born", tool="News"), Retrieval((), error="the source does not answer")),
)


def test_searches_and_the_answer_are_shown_in_lines_and_as_json() -> None:
    episode = Episode(ASKED, STEPS, Outcome("Bath", (Hop("founder of Acme", "Ada"),)))
    output = lines(episode)
    assert output[0] == "search: founder of Acme" and output[1].startswith("  1. [p7] Acme: Ada Brown founded it. xxx")
    assert output[1].endswith("x...") and output[2:] == [
        "search (News): Ada Brown born",
        "  the source does not answer",
        "answer: Bath",
    ]
    found = as_json(episode)
    assert found["answer"] == "Bath" and [one["query"] for one in found["searches"]][1] == "Ada Brown born"
    assert lines(Episode(ASKED, (), Outcome("")))[-1] == "no answer"
    assert lines(Episode(ASKED))[-1] == "this pipeline searches and gives no answer"


def test_what_cannot_be_asked_is_one_line(workplace: Path) -> None:
    params = Params.load()
    with pytest.raises(ParamsError, match="the question is empty"):
        ask(params, " \n ")
    with pytest.raises(ModelError, match=rf"neither {RETRIEVER} nor {ADAPTER} holds a model; run `harr run`"):
        ask(params, "Who?")
    with pytest.raises(ModelError, match="nowhere holds no model; name the folder"):
        ask(params, "Who?", Path("nowhere"))
    values = yaml.safe_load(Path("recipes/pick_multihop.yaml").read_text())
    with pytest.raises(ParamsError, match="picks from passages that come with each question"):
        ask(Params.model_validate(values), "Who?")


def test_the_merged_model_comes_before_the_adapter(workplace: Path) -> None:
    retriever, language_model = Params.load(), Params.load(Path("recipes/agent_small.yaml"))
    for folder, name in (
        (ADAPTER, "adapter_config.json"),
        (LANGUAGE_MODEL, "config.json"),
        (RETRIEVER, "modules.json"),
    ):
        folder.mkdir(parents=True)
        (folder / name).touch()
    assert find_model(language_model, None) == LANGUAGE_MODEL and find_model(retriever, None) == RETRIEVER
    (LANGUAGE_MODEL / "config.json").rename(LANGUAGE_MODEL / "untrained.json")  # a retriever was trained last
    assert find_model(language_model, None) == ADAPTER and find_model(language_model, RETRIEVER) == RETRIEVER
