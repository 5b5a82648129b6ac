"""Which sections go together: one line names what does not."""

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from parameters import GOOD, SERVER, load

from harr.builders.pipeline import build_pipeline
from harr.builders.places import Places
from harr.errors import ParamsError
from harr.params.evaluate import EvaluateParams
from harr.params.fields import Section
from harr.params.generator import ServedParams
from harr.params.loop import LoopParams
from harr.params.pipeline import RSearchParams
from harr.params.reward import COSTS, TERM_NAMES, RewardParams
from harr.params.rules import RULES
from harr.rag.scoring.reward import BATCHED
from harr.rag.scoring.terms import STEP_TERMS, TERMS
from harr.types import Question

GAME: dict[str, Any] = {
    **GOOD,
    "pipeline": {"name": "multistep"},
    "generator": {"kind": "function", "function": "mine.players:Script"},
}
AGENT: dict[str, Any] = {
    **GOOD,
    "train": {"method": "agent"},
    "pipeline": {"name": "search_r1", "template": "bare"},
    "generator": {"kind": "trained", "function": "mine.lm:train"},
    "filter": {"keep": "all"},
    "evaluate": {"arms": ["base", "warmstart", "trained"]},
}
SOURCES: dict[str, Any] = {
    **AGENT,
    "pipeline": {"name": "r_search"},
    "generator": {"kind": "local", "model": "m"},
    "sources": {tool: {"kind": "milvus"} for tool in ("General", "News", "Academy")},
    "evaluate": {"arms": ["base", "trained"]},
}
LERET: dict[str, Any] = {
    **GOOD,
    "train": {"method": "leret"},
    "pipeline": {"name": "leret"},
    "generator": {"kind": "local", "model": "m"},
    "filter": {},
    "evaluate": {"arms": ["base", "few_shot", "few_shot_all", "sft", "trained"]},
}
OUTSIDE: dict[str, Any] = {
    **GOOD,
    "download": {"dataset": "function", "function": "mine.data:load", "settings": {"size": 3}},
    "pipeline": {"name": "function", "function": "mine.agent:play"},
    "train": {"method": "function", "function": "mine.train:METHOD", "learns": "retriever"},
    "evaluate": {"arms": ["frozen", {"name": "mine", "retriever": "mine.search:Retriever"}, "trained"]},
}
GAMES_THAT_DO_NOT_FIT = r"""
generator: {kind: none} -> pick without reader needs kind none
pipeline: {name: search_r1, template: chat}, generator: {kind: server, model: m, server: {urls: ["http://127.0.0.1:8000/v1"]}}
    -> pipeline.template chat writes in the chat template .* server has none here; set generator.tokenizer, or set
train: {method: grpo, validation: {every: 5}}, download: {dataset: jsonl, passages: [p], train: [t], test: [t]} -> and there are none; set download.validation_questions
train: {method: grpo, validation: {every: 7}} -> 7 is no multiple of train.checkpoints.every 5, where weights are
train: {method: grpo, validation: {keep: best}} -> keep: best needs validation; set train.validation.every
pipeline: {name: r_search, tools: [a, a]} -> tools \['a', 'a'\] should be different words
pipeline: {name: r_search, tools: [a (b)]} -> should be different words without blanks
pipeline: {name: r_search, max_nodes: 27} -> pipeline.max_nodes: should be less than or equal to 26
train: {method: pqn} -> pqn plays pipeline pick; set retriever.candidates: question
train: {method: pqn}, retriever: {candidates: question}, evaluate: {candidates: [question]}, merge: {towers: query},
    pipeline: {name: pick}, generator: {kind: none}
    -> merge.towers query leaves out a tower that train.method pqn trains; leave it out
retriever: {positions: relative} -> retriever\.positions is for train\.method pqn; leave it out
retriever: {search: hybrid}, index: {full_text: false}, evaluate: {arms: [trained]}
    -> retriever.search hybrid needs the BM25 index; set index.full_text: true
index: {full_text: false}, evaluate: {arms: [hybrid, trained]} -> the arm hybrid needs the BM25 index
index: {full_text: false}, evaluate: {arms: [hybrid, trained]} -> hybrid needs the BM25 index; set index.full_
reward: {mix: pca}, train: {method: ppo} -> pca compares the rollouts of a group, which ppo does not; use
reward: {filter_by_mean: true}, train: {method: ppo} -> reward.filter_by_mean compares
encoder: {query_prompt: "Instruct: Find it\nQuery: "}
    -> encoder.query_prompt ends with Query:, which retriever.state json writes itself; end it with a line break
retriever: {learns: link_features} -> trains the term of retriever\.link_features, which is not set; set that, too
retriever: {learns: query_adapter}, pipeline: {name: search_r1}, generator: {kind: local, model: m}, train: {method: agent}, evaluate: {arms: [base, trained]}
    -> retriever.learns query_adapter is for a query encoder over vectors that stay; with train.method agent leave it out
evaluate: {arms: [links_alone, trained]}
    -> the arm links_alone learns by the features of retriever\.link_features, which is not set; set that, or leave it
retriever: {pick_tokens: 256, state: sep} -> a pick of pick_tokens 256 fills a state of max_tokens 256
reward: {mix: std}, train: {method: grpo, credit: step}
    -> reward.mix std mixes rewards of whole episodes; set train.credit: episode
retriever: {search: sparse, candidates: question} -> retriever.search sparse is for candidates: corpus
pipeline: {name: pick}, generator: {kind: none}, evaluate: {arms: [last_answer, bm25, trained]}
    -> evaluate.arms last_answer rewrites queries, and pipeline pick searches for the question alone; leave it
pipeline: {name: search_r1}, generator: {kind: function, function: "a:b"}, evaluate: {arms: [bm25_oracle_query, trained]}
    -> evaluate.arms bm25_oracle_query needs queries whose pronouns are resolved, which pipeline search_r1
tracking: {baseline: bm25}, evaluate: {arms: [frozen, trained]}
    -> tracking.baseline bm25 is not in evaluate.arms \(frozen, trained\); add it there
evaluate: {arms: [warm_start, trained]}
    -> the training of the arm trained makes the arm warm_start, and train.warm_start is 0; set it, or leave the arm out
retriever: {state: thought}
    -> thought tells what the agent wrote before a search, and pipeline multistep writes nothing there; set json or
evaluate: {arms: [thought, trained]}, pipeline: {name: pick}, generator: {kind: none}
    -> evaluate.arms thought tells what the agent wrote .* pipeline pick writes nothing there; leave it out
retriever: {state: thought}, pipeline: {name: search_r1}, generator: {kind: function, function: "a:b"}
    -> evaluate.arms history reads the finished hops, .* leaves out; name the arm thought in its place
retriever: {function: "mine.search:Own"} -> retriever\.function is for train\.method agent or leret: .*; leave
"""
AGENTS_THAT_DO_NOT_FIT = r"""
train: {method: agent, scale: none} -> train.scale none has no effect with reward.mix weighted, .* set reward.mix: sum
train: {method: grpo} -> evaluate.arms base does not go with train.method grpo .* choose from bm25, frozen
generator: {kind: function, function: "a:b"} -> generator.kind is function: use trained or local
generator: {kind: server, model: m, server: {urls: ["http://127.0.0.1:8000/v1"]}}
    -> generator.kind is server: use trained or local
pipeline: {name: multistep}, generator: {kind: local, model: m}
    -> agent plays search_r1, r_search or react, not multistep
pipeline: {name: react}, generator: {kind: local, model: m}
    -> train.method agent trains on one growing text; set pipeline.shows: passages
train: {method: agent, lora: null, server: {urls: ["http://127.0.0.1:8000"]}} -> train.server is sent a LoRA; set
train: {method: agent, server: {urls: ["http://127.0.0.1:8000/v1"]}}
    -> train.server is the root of a vLLM server; leave /v1 out
train: {method: agent, server: {urls: ["127.0.0.1:8000"]}}
    -> train.server.urls.0: should be an address with http:// or https://
evaluate: {arms: [frozen, trained]} -> evaluate.arms frozen does not go with train.method agent
retriever: {state: thought} -> thought is for a retriever that learns: with train.method agent all search for
generator: {kind: local, model: m} -> arms warmstart .* choose from base, trained
train: {method: agent, credit: step} -> train.credit; known here: validation, steps, questions_per_
train: {method: agent, optimizer: {precision: float16}}
    -> takes no float16, .*; set train.optimizer.precision: bfloat16
train: {method: agent, quantization: nf4, lora: null} -> nf4 freezes the base; set train.lora
generator: {kind: local, model: m, warmstart: {demonstrations: "a:b"}}, pipeline: {name: react}
    -> traces are made for pipeline search_r1 with template plain
generator: {kind: local, model: m, warmstart: {demonstrations: "a:b", template: chatml}} -> traces are made for pipeline search_r1 with template chatml
generator: {kind: local, model: m, warmstart: {demonstrations: d, rows_per_step: 3}} -> 3 demonstrations a step do not make whole passes of 4
filter: {keep: all, preferences: {}} -> filter\.preferences is for train\.method leret; leave it out
evaluate: {arms: [base, warmstart, trained], reader: {kind: server, server: {urls: ["http://127.0.0.1:1/v1"]}, model: m}}
    -> evaluate\.reader is for train\.method leret, .* leave it out
"""
SOURCES_THAT_DO_NOT_FIT = r"""
sources: {General: {kind: exa, server: {urls: ["http://a", "http://b"]}}, News: {kind: milvus}, Academy: {kind: milvus}}
    -> sources\.General\.server: takes one address; servers\..*urls has 2, leave the others out
pipeline: {name: r_search, tools: [General]} -> sources\.Academy is asked by no tool
pipeline: {name: r_search, tools: [Law]} -> pipeline.tools Law has no source; add sources.Law
train: {method: grpo}, evaluate: {arms: [trained]}
    -> grpo learns from what our own index finds, and sources do not learn; leave sources out
evaluate: {arms: [trained], candidates: [question]} -> not the passages given; set candidates
"""
LERETS_THAT_DO_NOT_FIT = r"""
pipeline: {name: search_r1} -> train.method leret plays leret, not search_r1; set pipeline.name
train: {method: agent} -> pipeline leret and train.method agent: pipeline leret goes with method leret
generator: {kind: server, model: m, server: {urls: ["http://127.0.0.1:8000/v1"]}}
    -> leret trains the language model; generator.kind is server
evaluate: {arms: [warmstart, trained]} -> arms warmstart .* choose from base, few_shot, few_shot_all, sft
evaluate: {arms: [base, sft]} -> the training of the arm trained makes the arm sft; add trained
filter: {keep: all} -> leret does not read filter.keep
filter: {preferences: {prompts: 3, candidates: 2}}
    -> 3 prompts cannot be chosen from 2 candidates; lower prompts or raise candidates
filter: {preferences: {held_out: 1.0}} -> filter.preferences.held_out: should be less than 1
train: {method: leret, ipo_batch: 6} -> train.ipo_batch 6 does not make whole passes of 4
"""
OUTSIDE_THAT_DOES_NOT_FIT = r"""
pipeline: {name: function, function: mine/agent.py} -> pipeline.function: should be package.module:function
download: {dataset: function, function: "a:b", sizes: 3} -> unknown parameter download.sizes; known here: validation_qu
train: {method: function, function: "a:B", learns: both} -> train.learns: should be 'retriever' or 'language_model'
evaluate: {arms: [{name: mine}]} -> evaluate.arms.0: arm mine: give one of retriever, method and player
evaluate: {arms: [trained, trained]} -> evaluate: arms names trained twice
evaluate: {arms: [{name: mine, player: "a.b:C"}, trained]} -> the arm mine plays a language model that learns to answer
evaluate: {arms: [{name: mine, player: "a.b"}, trained]} -> evaluate.arms.0.player: should be package.module:function
evaluate: {arms: [{name: mine, method: "a.b:C", retriever: "a.b:C"}]}
    -> arm mine: give one of retriever, method and player
evaluate: {arms: [{name: trained, retriever: "a.b:C"}]} -> evaluate: arms: trained is an arm of our own
evaluate: {arms: [base, trained]} -> evaluate.arms base does not go with train.method function
"""
REWARDS_THAT_SCORE_NOTHING = r"""
reward: {terms: {anser_f1: 1}} -> reward: unknown term anser_f1 in terms; known: answer_f1, answer_em
reward: {terms: {nDCG@20: 1}} -> reward.terms: nDCG@20 is not measured; known: R@2, R@5, R@10, Success@5, nDCG@10
reward: {terms: {RR: 1, reciprocal_rank: 1}} -> reward.terms: a measure is there twice among RR, recip
reward: {terms: {recall: 0, mrr: [{weight: 0, end: 3}]}} -> not all 0 \(found \[0.0, 0.0\]\)
reward: {terms: {judge: 1}} -> the term judge needs a model; give reward.judge
reward: {terms: {recall: 1}, judge: {kind: server, model: m, server: {urls: ["http://h/v1"]}}}
    -> judge is asked by the terms judge and semantic only
reward: {terms: {semantic: 1, semantic_f1: 1}} -> the term semantic is semantic_f1; leave one of them out
reward: {terms: {recall: 1, search_cost: 0.1}, mix: l2} -> mix l2 takes .* leave search_cost out
reward: {terms: {recall: 1, misses: -0.1}, mix: l2} -> mix l2 takes .* leave misses out
tracking: {metric: P@5} -> tracking.metric: P@5 is not measured; known: R@2
"""
TABLES = (
    (GOOD, REWARDS_THAT_SCORE_NOTHING),
    (OUTSIDE, OUTSIDE_THAT_DOES_NOT_FIT),
    (GAME, GAMES_THAT_DO_NOT_FIT),
    (AGENT, AGENTS_THAT_DO_NOT_FIT),
    (SOURCES, SOURCES_THAT_DO_NOT_FIT),
    (LERET, LERETS_THAT_DO_NOT_FIT),
)
CASES = [
    pytest.param(base, *case.split(" -> "), id=case.split(" -> ")[0])
    for base, table in TABLES
    for case in re.sub(r"\n +", " ", table.strip()).splitlines()
]
"""Changes to a valid file -> a pattern of the message."""


@pytest.mark.fault(20)
@pytest.mark.parametrize(("base", "changes", "line"), CASES)
def test_sections_that_do_not_fit_each_other(base: dict[str, Any], changes: str, line: str, tmp_path: Path) -> None:
    load(base, tmp_path)
    with pytest.raises(ParamsError, match=line) as error:
        load({**base, **yaml.safe_load(f"{{{changes}}}")}, tmp_path)
    assert "\n" not in str(error.value)


def test_an_agent_is_compared_with_what_it_was(tmp_path: Path) -> None:
    assert load(AGENT, tmp_path).baseline == "warmstart"
    local = {"generator": {"kind": "local", "model": "m"}, "evaluate": {"arms": ["base", "trained"]}}
    assert load({**AGENT, **local}, tmp_path).baseline == "base"
    warm = {"generator": {"kind": "local", "model": "m", "warmstart": {"demonstrations": "a:b", "template": "bare"}}}
    assert load({**AGENT, **warm}, tmp_path).baseline == "warmstart"
    assert load(GOOD, tmp_path).baseline == "frozen"
    graphs = {**AGENT, **local, "pipeline": {"name": "r_search", "max_nodes": 4, "tools": ["General"]}}
    params = load(graphs, tmp_path)
    game = build_pipeline(params.pipeline, params.generator, Places.of_project(tmp_path))(Question("q", "Who?"))
    assert "4" in next(game).prompt  # type: ignore[union-attr]


def test_a_map_of_the_vector_needs_no_links(tmp_path: Path) -> None:
    params = load({**GAME, "train": {"method": "grpo"}, "evaluate": {"arms": ["query_adapter", "trained"]}}, tmp_path)
    assert params.evaluate.arm_table["query_adapter"].overrides == {"learns": "query_adapter"}


def test_what_can_be_scored_is_taken(tmp_path: Path) -> None:
    assert set(TERM_NAMES) == {*TERMS, *STEP_TERMS, *BATCHED} and set(COSTS) <= set(TERMS)
    for section in (
        {"terms": {"semantic": 1}},
        {"terms": {"judge": 1, "recall": 0}, "judge": SERVER},
        {"terms": {"my.terms:mine": 1, "search_cost": 0.1}},
        {"terms": {"recall": 1, "answer_em": 2}, "mix": "l2"},
    ):
        load({**GOOD, "reward": section}, tmp_path)
    with pytest.raises(ParamsError, match="starts at step 5 cannot end at step 5"):
        load({**GOOD, "reward": {"terms": {"recall": {"weight": 1, "start": 5, "end": 5}}}}, tmp_path)
    measured = {"reward": {"terms": {"nDCG@10": 1.0, "R@5": 0.5}}}
    params = load({**GOOD, **measured, "tracking": {"metric": "Success@5"}}, tmp_path)
    assert set(params.reward.terms) == {"ndcg_at_10", "recall_at_5"} and params.tracking.metric == "success_at_5"


class SixthParams(LoopParams):
    """A method known only to its own class."""

    learns: ClassVar[str] = "language_model"
    arms: ClassVar[tuple[str, ...]] = ("base", "trained")
    plays: ClassVar[tuple[str, ...]] = ("search_r1",)
    compares_groups: ClassVar[bool] = False
    method: str = "sixth"
    temperature: float = 1.0
    max_tokens: int = 64


@pytest.mark.parametrize(
    ("section", "change", "line"),
    [
        ("pipeline", RSearchParams(name="r_search"), "train.method sixth plays search_r1, not r_search"),
        ("generator", ServedParams(**SERVER), "train.method sixth trains the language model; generator.kind is server"),
        (
            "evaluate",
            EvaluateParams(arms=("frozen",)),
            "frozen does not go with train.method sixth .* from base, trained",
        ),
        ("reward", RewardParams(mix="sum"), "reward.mix sum compares .* which sixth does not"),
    ],
)
def test_the_rules_read_facts_and_need_no_edit_for_a_sixth_method(
    section: str, change: Section, line: str, tmp_path: Path
) -> None:
    local = {"generator": {"kind": "local", "model": "m"}, "evaluate": {"arms": ["base", "trained"]}}
    fits = load({**AGENT, **local}, tmp_path).model_copy(update={"train": SixthParams()})
    for rule in RULES:
        rule(fits)
    with pytest.raises(ValueError, match=line):
        for rule in RULES:
            rule(fits.model_copy(update={section: change}))
