"""What an agent writes right before a search comes with that search, in every pipeline, whatever else is played."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import pytest
from by_hand import Fixed, Script

from harr.params.pipeline import PipelineParams
from harr.rag.pipelines import PIPELINES
from harr.rag.pipelines.leret import LeReT
from harr.rag.pipelines.multistep import multistep
from harr.rag.pipelines.pick import pick
from harr.rag.pipelines.r_search import r_search
from harr.rag.pipelines.react import react, react_passages
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.types import Generate, Passage, Pipeline, Question

ADA, ACME = Question("ada", "Where was the mother of Ada Brown born?"), Question("acme", "Who founded Acme?")
MOTHER = Passage("p", "Her mother was Clara.", "Ada Brown")
TAGGED = "<think>Her mother\nfirst, <tool_call>?</think>I look: "
GRAPH = "\nNodes:\nA: mother of Ada (General)\nB: birthplace of $A (General)\nC: age of Ada (General)\nEdges:\nA -> B\n"


def call(query: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'search', 'arguments': {'query': query}})}"


def found(answer: str) -> str:
    return json.dumps({"status": "FOUND", "answer": answer})


def ask(query: str) -> str:
    return f"<think>So.</think>{json.dumps({'action': 'ASK', 'sub_query': query, 'strategy': 'look'})}"


class Scripts(Script):
    """Writes for each question its own replies, one after the other; asks what came before whose turn it is."""

    def __init__(self, replies: dict[str, list[str]]) -> None:
        super().__init__()
        self.own = replies

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        return [self.reply(request) for request in requests]

    def reply(self, request: Generate) -> str:
        first = request.past[0].request if request.past else request
        text = first.prompt or first.messages[-1]["content"]
        (own,) = (self.own[question.id] for question in (ADA, ACME) if question.text in text)
        return request.cut(own[len(request.past)])


THOUGHT = "Her mother first, ? I look:"
PLAYED: dict[str, tuple[Pipeline, list[str], list[str], dict[str, str]]] = {
    "search_r1": (
        partial(search_r1, max_searches=3),
        [f"{TAGGED}<search>mother", "<think>Clara.</think><search>birthplace", "<answer>Bath"],
        ["I know.", "<search>founder", "<think>Ada.</think><answer>Ada"],
        {"mother": THOUGHT, "birthplace": "Clara.", "founder": ""},
    ),
    "react": (
        partial(react, max_searches=3),
        [TAGGED + call("mother"), found("Clara"), "Clara. " + call("birthplace"), found("Bath"), "Final answer: Bath"],
        [call("founder"), found("Ada"), "Final answer: Ada"],
        {"mother": THOUGHT, "birthplace": "Clara.", "founder": ""},
    ),
    "react, passages": (
        partial(react_passages, max_searches=3),
        [TAGGED + call("mother"), "Clara. " + call("birthplace"), "Final answer: Bath"],
        ["I know.", call("founder"), "Final answer: Ada"],
        {"mother": THOUGHT, "birthplace": "Clara.", "founder": ""},
    ),
    "r_search": (  # the prompt began the thoughts; two searches are made at once
        partial(r_search, tools=("General",)),
        [f"{TAGGED.removeprefix('<think>')}<search>{GRAPH}", "<think>Clara.</think><found>A is Clara", "<answer>Bath"],
        ["</think><search>\nNodes:\nA: founder (General)\nEdges:\n", "<answer>Ada"],
        {"mother of Ada": THOUGHT, "age of Ada": THOUGHT, "birthplace of Clara": "Clara.", "founder": ""},
    ),
    "leret": (
        LeReT(2, template="chat"),
        ["<think>Her mother\nfirst.</think>\nmother\nor aunt", "Clara.</think>birthplace"],
        ["founder", "founder of Acme"],
        {"mother": "Her mother first.", "birthplace": "Clara.", "founder": "", "founder of Acme": ""},
    ),
    "multistep": (
        partial(multistep, max_hops=1),
        [ask("mother"), found("Clara"), "Bath"],
        [ask("founder"), found("Ada"), "Ada"],
        {"mother": "", "founder": ""},
    ),
    "pick": (partial(pick, picks=1), [], [], {ADA.text: "", ACME.text: ""}),
}


@pytest.mark.parametrize("name", PLAYED)
def test_a_search_brings_what_was_written_right_before_it(name: str) -> None:
    pipeline, ada, acme, thoughts = PLAYED[name]
    shelf = Fixed(MOTHER)
    play([ADA, ACME], pipeline, shelf, Scripts({"ada": ada, "acme": acme}))
    asked = [search for batch in shelf.batches for search in batch]
    assert {search.query: search.thought for search in asked} == thoughts
    assert max(map(len, shelf.batches)) > 1, "searches with other thoughts are answered together"


def test_the_parameters_say_which_pipelines_bring_thoughts() -> None:
    union: Any = get_args(PipelineParams)[0]
    facts = {get_args(kind.model_fields["name"].annotation)[0]: kind for kind in get_args(union) if not kind.foreign}
    told = {name.partition(",")[0]: any(thoughts.values()) for name, (*_, thoughts) in PLAYED.items()}
    assert told == {name: kind.thinks for name, kind in facts.items()}
    assert told.keys() == PIPELINES.keys() - {"function"}
