"""params.yaml: what is wrong is said in one line with the key and what was meant."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from parameters import GOOD, ROOT, SERVER, load

from harr.arms import ARMS
from harr.errors import ParamsError
from harr.params import Params
from harr.params.generator import ServerParams
from harr.params.train import GRPOParams


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
            f"evaluate.arms.0: should be {', '.join(map(repr, [*ARMS][:-1]))} or 'full' (found 'bm26')",
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

    text = (ROOT / "params.yaml").read_text().replace(" oracle_query,", "")
    text = text.replace("kind: scripted", "kind: server").replace("seed: 0", "seed: 010", 1)
    body = "  base_url: http://127.0.0.1:8000/v1\n  model: m\n  extra_body: {min_p: 1e-2, flag: no, on: 2e-4}\nreward:"
    (tmp_path / "params.yaml").write_text(text.replace("\nreward:", f"\n{body}", 1))
    read, noted = Params.load(tmp_path / "params.yaml"), load_yaml(str(tmp_path / "params.yaml"))
    assert isinstance(read.generator, ServerParams) and (read.seed, noted["seed"]) == (10, 10)
    assert read.generator.extra_body == noted["generator"]["extra_body"] == {"min_p": 0.01, "flag": "no", "on": 2e-4}


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"nowhere\.yaml: cannot be read"):
        Params.load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("method", "names"), [("pqn", ("credit", "clip_low", "num_iterations")), ("agent", ("credit",))]
)
def test_a_method_has_no_parameter_that_it_does_not_read(method: str, names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        with pytest.raises(ParamsError, match=f"unknown parameter train.{name}"):
            load({**GOOD, "train": {"method": method, name: 1}}, tmp_path)


KEY = "sk-proj-0123456789-abcdef"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("base_url", f"https://h/v1?api_key={KEY}", "generator.base_url: an address takes no query and no fragment"),
        ("base_url", f"https://h/v1#{KEY}", "generator.base_url: an address takes no query and no fragment"),
        ("key_variable", KEY, "generator.key_variable: should be the name of an environment variable"),
        ("extra_body", {"api_key": KEY}, "generator.extra_body: api_key looks like a key or password"),
        ("extra_body", {"a": [{"Authorization": KEY}]}, "generator.extra_body: Authorization looks like a key"),
        ("extra_body", {"a": [[{"pwd": KEY}]]}, "generator.extra_body: pwd looks like a key"),
        ("extra_body", {"api_key": [KEY]}, "generator.extra_body: api_key looks like a key"),
        ("extra_body", {"credentials": {"a": KEY}}, "generator.extra_body: credentials looks like a key"),
        ("extra_body", {"headers": {"Cookie": KEY}}, "generator.extra_body: Cookie looks like a key"),
        ("extra_body", {"headers": {"X-Key": KEY}}, "generator.extra_body: X-Key looks like a key"),
        ("extra_body", {"a": [f"Bearer {KEY}"]}, "generator.extra_body: a looks like a key"),
    ],
)
def test_what_may_be_a_key_is_refused_and_not_told(name: str, value: object, told: str, tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
    values["generator"] = {"kind": "server", "model": "m", "base_url": "http://h/v1", name: value}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ParamsError) as refused:
        Params.load(tmp_path / "params.yaml")
    assert told in str(refused.value) and KEY not in str(refused.value)


@pytest.mark.parametrize("tail", [f"?token={KEY}", f"#{KEY}"])
def test_the_address_of_a_store_takes_no_token(tail: str, tmp_path: Path) -> None:
    """A database may need a query (``?sslmode=require``), a tracking server does not."""
    values = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
    for address in (f"http://h:5000{tail}", "postgresql://h/runs?sslmode=require"):
        values["tracking"]["uri"] = address
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
        if address.startswith("postgresql"):
            assert Params.load(tmp_path / "params.yaml").tracking.uri == address
            continue
        with pytest.raises(ParamsError) as refused:
            Params.load(tmp_path / "params.yaml")
        assert "tracking.uri: an address takes no query" in str(refused.value) and KEY not in str(refused.value)


def test_fields_that_only_sound_like_a_key_are_taken(tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
    body = {"eos_token": "x", "max_tokens": 3, "chat_template_kwargs": {"enable_thinking": False}, "key": "f"}
    body |= {"secret": False, "auth_key_bytes": 16, "stop": ["The bearer said"]}
    values["generator"] = {"kind": "server", "model": "m", "base_url": "http://h/v1", "extra_body": body}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    assert Params.load(tmp_path / "params.yaml").generator.model_dump()["extra_body"] == body


def test_what_a_terminal_would_act_on_is_not_in_a_message(tmp_path: Path) -> None:
    text = (ROOT / "recipes/smoke.yaml").read_text()
    (tmp_path / "params.yaml").write_text(text + '"a\\e[2Jb\\u202e": 3\n')
    with pytest.raises(ParamsError, match=r"unknown parameter a\?\[2Jb\?"):
        Params.load(tmp_path / "params.yaml")


def test_the_metric_that_decides_does_not_follow_the_order_of_keys(tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
    for terms in ({"recall": 0.5, "answer_f1": 1.0}, {"answer_f1": 1.0, "recall": 0.5}, {"recall": 1, "answer_f1": 1}):
        values["reward"] = {"terms": terms}
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        assert Params.load(tmp_path / "params.yaml").headline == "answer_f1"
    values["tracking"]["metric"] = "recall"
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    assert Params.load(tmp_path / "params.yaml").headline == "recall"
