"""params.yaml: an error is one line with the key and what was probably meant."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from parameters import GOOD, ROOT, SERVER, load

from harr.arms import ARMS
from harr.errors import ParamsError
from harr.params import Params
from harr.params.fields import Section
from harr.params.generator import ServedParams
from tasks.inputs.stages import READS

LONG = "a" * 300
KEY = "sk-proj-0123456789-abcdef"
PLACE = "should be a path or name with at most 255 bytes between two slashes"
ADDRESS = "should be an address with http:// or https://"
NAMED = "tracking.registered_model: should be a name of 1 to 200"
BASES: dict[str, tuple[str, dict[str, Any]]] = {
    "jsonl": ("download", {"dataset": "jsonl", "passages": ["p"], "train": ["t"], "test": ["t"]}),
    "local": ("generator", {"kind": "local", "model": "m"}),
    "server": ("generator", SERVER),
    "judge": ("reward", {"terms": {"judge": 1}, "judge": SERVER}),
    "pqn": ("train", {"method": "pqn"}),
    "agent": ("train", {"method": "agent"}),
}
"""Sections to change that the recipe lacks: its name, and its other contents."""


def changed(key: str, value: Any) -> dict[str, Any]:
    """Return the smoke recipe with one value of a section, or a section, changed."""
    section, _, name = key.partition(".")
    section, base = BASES.get(section, (section, GOOD.get(section, {})))
    return {**GOOD, section: {**base, name: value} if name else value}


@pytest.mark.fault(20)
@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("trian", {}, "unknown parameter trian; did you mean train"),
        ("a\x1b[2Jb\u202e", 3, "unknown parameter a?[2Jb?"),
        (
            "train.optimizer",
            {"lerning_rate": 1},
            "unknown parameter train.optimizer.lerning_rate; did you mean learning_rate?",
        ),
        ("train.lora", {"rnk": 2}, "unknown parameter train.lora.rnk; did you mean rank?"),
        ("pipeline.max_hop", 2, "unknown parameter pipeline.max_hop; did you mean max_hops?"),
        ("pqn.credit", 1, "unknown parameter train.credit"),
        ("pqn.num_iterations", 1, "unknown parameter train.num_iterations"),
        ("agent.credit", 1, "unknown parameter train.credit"),
        ("retriever.k", 40, "retriever: k = 40 passages cannot be chosen from a pool of 30"),
        ("train.group_size", 1, "train.group_size: should be greater than or equal to 2 (found 1)"),
        (
            "reward.terms",
            {"semantic": [{"weight": 0.2, "end": 31}, {"weight": 0.5, "start": 30}]},
            "reward.terms: semantic has two weights at step 30; let one end where the next starts",
        ),
        ("reward.terms", {"semantic": []}, "reward.terms: semantic has an empty list of weights"),
        (
            "reward.terms",
            {"a.b:c": {"weight": 1, "settings": {}}},
            "unknown parameter reward.terms.a.b:c.settings; known",
        ),
        ("train.steps", "many", "train.steps: should be a valid integer"),
        ("retriever.temperature", 0, "retriever.temperature: should be greater than 0 (found 0)"),
        (
            "evaluate.arms",
            ["bm26"],
            f"evaluate.arms.0: should be {', '.join(map(repr, [*ARMS][:-1]))} or 'trained' (found 'bm26')",
        ),
        # these would end in a traceback hours later
        ("jsonl.seed", -5, "download.seed: should be greater than or equal to 0 (found -5)"),
        ("tracking.registered_model", "a/b:c", NAMED),
        ("tracking.registered_model", "", NAMED),
        ("tracking.registered_model", "..", NAMED),
        ("tracking.registered_model", "Ann's", NAMED),
        ("tracking.registered_model", "a@b", NAMED),
        ("tracking.registered_model", LONG, NAMED),
        ("tracking.experiment", " ", "tracking.experiment: should be a name of 1 to 500 characters"),
        ("tracking.experiment", "a" * 2000, "tracking.experiment: should be a name of 1 to 500 characters"),
        ("encoder.model", "", "encoder.model: String should have at least 1 character"),
        ("encoder.model", LONG, f"encoder.model: {PLACE}"),
        ("encoder.model", "a\0b", "encoder.model: should be a path or name without line breaks"),
        ("local.model", f"models/{LONG}", f"generator.model: {PLACE}"),
        ("jsonl.train", [f"x/{LONG}"], f"download.train.0: {PLACE}"),
        (
            "train.optimizer",
            {"learning_rate": float("inf")},
            "train.optimizer.learning_rate: should be a finite number (found inf)",
        ),
        (
            "train.optimizer",
            {"weight_decay": "nan"},
            "train.optimizer.weight_decay: should be a finite number (found 'nan')",
        ),
        ("evaluate.arms", [], "evaluate.arms: should have at least one item"),
        # addresses
        ("index.uri", "http://127.0.0.1:99999", f"index.uri: {ADDRESS}"),
        ("index.uri", "http://[::1", f"index.uri: {ADDRESS}"),
        ("index.uri", "x.db", f"index.uri: {ADDRESS}"),
        ("server.server", {"urls": [""]}, f"generator.server.urls.0: {ADDRESS}"),
        (
            "servers.llm",
            {"urls": ["127.0.0.1:8000/v1"]},
            f"servers.llm.urls.0: {ADDRESS}, such as http://127.0.0.1:8000/v1 (found '127.0.0.1:8000",
        ),
        ("servers.llm", {"urls": [" http://h"]}, f"servers.llm.urls.0: {ADDRESS}"),
        ("servers.llm", {"urls": []}, "servers.llm.urls: should have at least one item"),
        ("server.server", "other", "generator.server: names no entry of section servers"),
        ("judge.judge", SERVER | {"server": {"urls": ["ftp://host/v1"]}}, f"reward.judge.server.urls.0: {ADDRESS}"),
        ("encoder.server", {"urls": ["http:///v1"]}, f"encoder.server.urls.0: {ADDRESS}"),
    ],
)
def test_a_wrong_value_is_one_line(key: str, value: Any, line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as error:
        load(changed(key, value), tmp_path)
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.fault(30)
@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        *(
            (
                "index.uri",
                f"http://{user}@127.0.0.1:1",
                "index.uri: an address takes no user name and no password",
            )
            for user in (KEY, f"root:{KEY}")
        ),
        (
            "judge.judge",
            SERVER | {"server": {"urls": [f"http://{KEY}@h"]}},
            "reward.judge.server.urls.0: an address takes no user",
        ),
        ("servers.llm", {"urls": [f"http://a:b/{KEY}@h"]}, "should be an address"),
        (
            "servers.llm",
            {"urls": [f"https://h/v1?api_key={KEY}"]},
            "servers.llm.urls.0: an address takes no query and no",
        ),
        (
            "servers.llm",
            {"urls": [f"https://h/v1#{KEY}"]},
            "servers.llm.urls.0: an address takes no query and no fragment",
        ),
        ("tracking.uri", f"http://h:5000?token={KEY}", "tracking.uri: an address takes no query"),
        ("tracking.uri", f"http://h:5000#{KEY}", "tracking.uri: an address takes no query"),
        (
            "servers.llm",
            {"urls": ["http://h"], "key_variable": KEY},
            "servers.llm.key_variable: should be the name of an environment variable",
        ),
        ("server.extra_body", {"api_key": KEY}, "generator.extra_body: api_key looks like a key or password"),
        ("server.extra_body", {"a": [{"Authorization": KEY}]}, "generator.extra_body: Authorization looks like a key"),
        ("server.extra_body", {"a": [[{"pwd": KEY}]]}, "generator.extra_body: pwd looks like a key"),
        ("server.extra_body", {"api_key": [KEY]}, "generator.extra_body: api_key looks like a key"),
        ("server.extra_body", {"credentials": {"a": KEY}}, "generator.extra_body: credentials looks like a key"),
        ("server.extra_body", {"headers": {"Cookie": KEY}}, "generator.extra_body: Cookie looks like a key"),
        ("server.extra_body", {"headers": {"X-Key": KEY}}, "generator.extra_body: X-Key looks like a key"),
        ("server.extra_body", {"a": [f"Bearer {KEY}"]}, "generator.extra_body: a looks like a key"),
    ],
)
def test_what_may_be_a_key_is_refused_and_not_printed(key: str, value: Any, line: str, tmp_path: Path) -> None:
    """dvc.lock copies sections as they stand."""
    with pytest.raises(ParamsError) as refused:
        load(changed(key, value), tmp_path)
    assert line in str(refused.value) and KEY not in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_windows_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(GOOD).replace("\n", "\r\n").encode())
    assert Params.load(tmp_path / "params.yaml") == load(GOOD, tmp_path)


@pytest.mark.fault(20)
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train:\n\tsteps: 1", "not valid YAML"),
        ("a: [", "not valid YAML"),
        (f"index: {{uri: 'http://root:{KEY}@h', x", "not valid YAML"),
        ("seed: 1\nseed: 2", 'line 2: found duplicate key "seed"'),
        ("[1]", "expected sections"),
        ("", "sections"),
        (yaml.safe_dump({key: value for key, value in GOOD.items() if key != "pipeline"}), "pipeline is missing"),
    ],
)
def test_what_is_no_mapping_of_all_sections(text: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        load(text, tmp_path)
    assert KEY not in str(error.value)
    with pytest.raises(ParamsError, match=r"nowhere\.yaml: cannot be read"):
        Params.load(tmp_path / "nowhere.yaml")


def test_names_numbers_and_addresses_at_their_bounds_are_taken(tmp_path: Path) -> None:
    named = {"registered_model": "Team (A) harr-1.2", "experiment": "team/harr: seed 7"}
    named["uri"] = "postgresql://h/runs?sslmode=require"  # a database may need a query
    changes = {"seed": 2**31 - 1, "tracking": named, "index": {"uri": "https://[::1]:65535"}, "generator": SERVER}
    changes |= {"evaluate": {"arms": ["trained"], "pass_at": [1]}}
    changes |= {"encoder": {"model": f"models/{'a' * 255}", "server": None}}
    params = load({**GOOD, **changes}, tmp_path)
    assert (params.seed, params.encoder.server, params.tracking.uri) == (2**31 - 1, None, named["uri"])
    assert isinstance(params.generator, ServedParams) and list(params.generator.server.urls) == SERVER["server"]["urls"]


@pytest.mark.fault(30)
def test_only_the_address_of_mlflow_may_hold_a_password_since_no_stage_names_it(tmp_path: Path) -> None:
    address = "postgresql://harr:secret@db/mlflow"
    assert load({**GOOD, "tracking": {"uri": address}}, tmp_path).tracking.uri == address
    read = {name for names in READS.values() for name in names if name.startswith("tracking")}
    assert read == {"tracking.registered_model"}


def test_params_yaml_says_to_us_what_it_says_to_dvc(tmp_path: Path) -> None:
    """In YAML 1.2 `1e-2` is a number, `no` a word and `010` ten; dvc.lock records that, and servers must get it."""
    from dvc.utils.serialize import load_yaml

    text = (ROOT / "params.yaml").read_text().replace(" oracle_query,", "")
    text = (
        text.replace("kind: function", "kind: server")
        .replace("  function: harr_people.player:Scripted\n", "")
        .replace("seed: 0", "seed: 010", 1)
    )
    body = "  server: {urls: ['http://127.0.0.1:8000/v1']}\n  model: m\n  extra_body: {min_p: 1e-2, flag: no, on: 2e-4}\nreward:"
    (tmp_path / "params.yaml").write_text(text.replace("\nreward:", f"\n{body}", 1))
    read, noted = Params.load(tmp_path / "params.yaml"), load_yaml(str(tmp_path / "params.yaml"))
    assert isinstance(read.generator, ServedParams) and (read.seed, noted["seed"]) == (10, 10)
    assert read.generator.extra_body == noted["generator"]["extra_body"] == {"min_p": 0.01, "flag": "no", "on": 2e-4}


def test_fields_that_only_sound_like_a_key_are_taken(tmp_path: Path) -> None:
    body = {"eos_token": "x", "max_tokens": 3, "chat_template_kwargs": {"enable_thinking": False}, "key": "f"}
    body |= {"secret": False, "auth_key_bytes": 16, "stop": ["The bearer said"]}
    assert load(changed("server.extra_body", body), tmp_path).generator.model_dump()["extra_body"] == body


class CountParams(Section):
    most: int = 10


def test_a_section_of_a_plug_in_is_read_as_its_class_and_a_fault_is_a_line(tmp_path: Path) -> None:
    params = load({**GOOD, "plugins": {"count": {"most": 3}, "other": {"mots": "x"}}}, tmp_path)
    assert [params.of_plugin(name, CountParams).most for name in ("count", "none")] == [3, 10]
    with pytest.raises(ParamsError) as error:
        params.of_plugin("other", CountParams)
    line = "params.yaml: section plugins.other: unknown parameter mots; did you mean most?"
    assert str(error.value) == line
