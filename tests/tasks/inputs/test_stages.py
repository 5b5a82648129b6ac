"""Which stages become stale with an edit of parameters, code or packages."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.errors import ParamsError
from harr.io.files import write_text
from harr.params import Params
from tasks.inputs import stages
from tasks.inputs.code import Code
from tasks.inputs.stages import READS, all_inputs, major

ROOT = Path(__file__).parents[3]
SMOKE = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
LERET = yaml.safe_load((ROOT / "recipes/leret_small.yaml").read_text())
PLUGINS = ("harr_encyclopaedia", "harr_people")
ALL, NONE = set(READS), set[str]()
SEARCHING = {"filter", "train", "arms", "evaluate", "report", "merge"}


class Edited(Code):
    """The code with one text replaced in one file."""

    def __init__(self, file: str, before: str, after: str) -> None:
        self.file, self.before, self.after = ROOT / file, before.encode(), after.encode()
        super().__init__(PLUGINS)

    def read(self, path: Path) -> bytes:
        data = super().read(path)
        if path == self.file:
            assert self.before in data, f"{path} has no {self.before!r}"
            data = data.replace(self.before, self.after)
        return data


@pytest.fixture(scope="module")
def original() -> dict[str, Any]:
    code = Code(PLUGINS)
    return {
        name: all_inputs(Params.model_validate(own), {}, code) for name, own in (("smoke", SMOKE), ("leret", LERET))
    }


def stale(before: dict[str, Any], now: dict[str, Any]) -> set[str]:
    return {stage for stage in READS if before[stage] != now[stage]}


def changed(**sections: Any) -> Params:
    """Return the smoke recipe with other values."""
    own = {name: SMOKE[name] | values if isinstance(values, dict) else values for name, values in sections.items()}
    return Params.model_validate(SMOKE | own)


PARAMETERS: dict[str, tuple[Params, set[str]]] = {
    "a default of train": (changed(train={"optimizer": {"final_rate": 0.5}}), {"train", "arms", "report"}),
    "the default written down": (changed(train={"optimizer": {"final_rate": 1.0}}), NONE),
    "retriever.k": (changed(retriever={"k": 4}), SEARCHING | {"generator"}),
    "the seed": (changed(seed=1), SEARCHING - {"merge"} | {"generator"}),
    "an untrained arm": (changed(evaluate={"arms": [*SMOKE["evaluate"]["arms"], "hybrid"]}), {"evaluate", "report"}),
    "link features": (changed(retriever={"link_features": "mine.links:open_links"}), SEARCHING),
    "a trained arm": (
        changed(evaluate={"arms": [*SMOKE["evaluate"]["arms"], {"name": "mine", "method": "mine.learn:METHOD"}]}),
        {"arms", "evaluate", "report"},
    ),
    "a retriever of a package": (
        changed(evaluate={"arms": [*SMOKE["evaluate"]["arms"], {"name": "mine", "retriever": "mine.search:Own"}]}),
        {"evaluate", "report"},
    ),
    "the address of MLflow": (changed(tracking={"uri": "http://127.0.0.1:5000"}), NONE),
    "the address of the index": (changed(index={"uri": "http://127.0.0.1:19530"}), {"index"}),
    "encoder.model": (changed(encoder={"model": "another"}), ALL - {"download", "index", "generator"}),
}


@pytest.mark.parametrize("edit", PARAMETERS)
def test_a_parameter_makes_the_stages_stale_that_read_it(edit: str, original: dict[str, Any]) -> None:
    params, wanted = PARAMETERS[edit]
    assert stale(original["smoke"], all_inputs(params, {})) == wanted


CODE: dict[str, tuple[str, str, str, set[str], set[str]]] = {
    # what: file, text before and after; stale stages of smoke (GRPO), and of leret_small
    "a docstring": ("harr/train/grpo.py", "GRPO for a dense", "Words for a dense", NONE, NONE),
    "a comment": ("harr/types.py", "\nimport", "\n# words\nimport", NONE, NONE),
    "layout": ("harr/rag/policies/plackett_luce.py", "\n\n\ndef", "\n\n\n\ndef", NONE, NONE),
    "a prompt of LeReT": ("harr/rag/pipelines/prompts/leret.txt", "e", "E", NONE, SEARCHING | {"generator"}),
    "the world of a plug-in": (
        "plugins/encyclopaedia/harr_encyclopaedia/world.py",
        "def make_world",
        "def make_worlds",
        {"download"},
        ALL - {"embed", "index", "merge"},
    ),
    "the loss of GRPO": ("harr/train/losses.py", "min", "max", {"train", "arms"}, NONE),
    "a colour of a plot": ("harr/report/plots.py", '"#', '"#0', NONE, NONE),
    "what an evaluation is compared by": (
        "tasks/evaluation_record.py",
        "def scoring",
        "def score",
        {"evaluate", "report", "merge"},
        {"evaluate", "report", "merge"},
    ),
    "a message": ("harr/errors.py", "    ", "    \t", NONE, NONE),
    "a passage's text": ("harr/types.py", "def content", "def contents", ALL, ALL),
    "a loader of another data set": (
        "plugins/open_domain/harr_open_domain/hub.py",
        "def hotpot_row",
        "def other",
        NONE,
        NONE,
    ),
    "a retry of a client": ("harr/services/milvus_client.py", "import time", "import os", NONE, NONE),
    "the record of an arm that is not played": (
        "harr/arms.py",
        "fuses the rankings of both",
        "fuses two rankings",
        NONE,
        NONE,
    ),
}


@pytest.mark.parametrize("edit", CODE)
def test_an_edit_of_the_code_makes_the_stages_stale_that_use_it(edit: str, original: dict[str, Any]) -> None:
    file, before, after, *wanted = CODE[edit]
    code = Edited(file, before, after)
    for (name, own), stages_of in zip((("smoke", SMOKE), ("leret", LERET)), wanted, strict=True):
        now = all_inputs(Params.model_validate(own), {}, code)
        assert stale(original[name], now) == stages_of, name


@pytest.mark.parametrize(
    ("package", "version", "wanted"),
    [
        ("mlflow", "99", NONE),
        ("peft", "99.1", ALL - {"download", "report"}),
        ("torch", "2.99.1", NONE),
    ],
)
def test_a_major_version_of_a_package_that_computes_counts(
    package: str, version: str, wanted: set[str], original: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = stages.metadata.version
    monkeypatch.setattr(stages.metadata, "version", lambda name: version if name == package else of(name))
    major.cache_clear()
    try:
        now = all_inputs(changed(), {})
    finally:
        major.cache_clear()
    assert stale(original["smoke"], now) == wanted


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("arm_alone", "arm_alone.py"),
        ("arm_within.search", "arm_within/sort.py"),
        ("arm_spread.search", "arm_spread/sort.py"),
    ],
)
def test_the_code_of_a_package_that_params_yaml_names_is_watched(
    module: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for package in ("arm_within", "arm_spread"):
        write_text(tmp_path / package / "search.py", f"from {package}.sort import order\n")
    (tmp_path / "arm_within/__init__.py").touch()  # arm_spread is a folder without one
    path = tmp_path / file
    path.write_text("def order(x): return x\n")
    arm = {"name": "mine", "retriever": f"{module}:Own"}
    params = changed(evaluate={"arms": [*SMOKE["evaluate"]["arms"], arm]})
    before = all_inputs(params, {})
    assert file in before["evaluate"]["code"] and file not in before["train"]["code"]
    path.write_text("def order(x): 'Doc.'; return x\n")
    assert stale(before, all_inputs(params, {})) == NONE
    path.write_text("def order(x): return -x\n")
    assert stale(before, all_inputs(params, {})) == {"evaluate", "report"}


@pytest.mark.parametrize("text", [b"def find(:", b"# caf\xe9\ndef find(): ..."])
def test_code_that_is_not_python_is_named(text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "arm_broken").mkdir()
    (tmp_path / "arm_broken/search.py").write_bytes(text)
    arm = {"name": "mine", "retriever": "arm_broken.search:find"}
    with pytest.raises(ParamsError, match=r"code that params\.yaml names cannot be read: .*arm_broken/search\.py"):
        all_inputs(changed(evaluate={"arms": [*SMOKE["evaluate"]["arms"], arm]}), {})


def test_a_plug_in_that_another_imports_counts_too() -> None:
    """RULER's stories come from the plug-in of lengths, which no parameter names."""
    values = yaml.safe_load((ROOT / "recipes/qrag_ruler.yaml").read_text(encoding="utf-8"))
    files = all_inputs(Params.model_validate(values), {})["download"]["code"]
    assert {"harr_ruler/needles.py", "harr_lengths/stories.py"} <= files.keys()
