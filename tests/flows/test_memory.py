"""What `harr preview` says a recipe will hold, beside what its stages held, and what makes it more or less."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from flows.memory import Shape, estimate_memory, files_check, memory_check, shape_of
from harr.datasets.preview import Data, read_data
from harr.params import Params

ROOT = Path(__file__).parents[2]
MINILM = Shape(weights=22_713_728, width=384, inner=1536, layers=6)
FEW = {"download": {"train_questions": 400, "test_questions": 60}}
MEASURED: list[tuple[str, dict[str, dict[str, Any]], dict[str, float]]] = [
    ("recipes/smoke.yaml", {}, {"embed": 0.98, "train": 1.16, "evaluate": 1.25}),
    ("params.yaml", {}, {"embed": 0.98, "train": 1.19, "evaluate": 1.54}),
    ("recipes/qrag_babilong_small.yaml", FEW, {"embed": 1.02, "train": 1.53, "evaluate": 1.28}),
]
"""Largest resident sets in GB, as in docs/performance.md, of recipes that were changed so."""


def changed(params: Params, sections: dict[str, dict[str, Any]]) -> Params:
    update = {name: getattr(params, name).model_copy(update=values) for name, values in sections.items()}
    return params.model_copy(update=update)


@cache
def recipe(name: str) -> tuple[Params, Data]:
    """A recipe and its data."""
    params = Params.load(ROOT / name)
    return params, read_data(params.download)


def test_a_model_folder_tells_its_shape(tiny: str) -> None:
    words = 30_522 * 64 + 512 * 64 + 2 * 64 + 2 * 64  # tables of words, places and kinds, and their norm
    layer = 4 * (64 * 64 + 64) + 2 * 64 * 128 + 128 + 64 + 4 * 64
    assert shape_of(tiny) == Shape(weights=words + 2 * layer + 64 * 64 + 64, width=64, inner=128, layers=2)
    assert shape_of("./nowhere") is None


def test_what_is_told_is_what_stages_held_within_a_third() -> None:
    for name, changes, measured in MEASURED:
        params = changed(Params.load(ROOT / name), changes)
        data = read_data(params.download)
        words = sum(len(text.split()) for text in data.contents.values()) / len(data.contents)
        found = estimate_memory(params, MINILM, data.splits.train, passages=len(data.ids or ()), words=words)
        for stage, peak in measured.items():
            assert 3 / 4 < found[stage] / 1e9 / peak < 4 / 3, (name, stage, found[stage], peak)


def test_too_much_is_a_warning_and_what_is_not_known_is_not_told() -> None:
    params, data = recipe("recipes/smoke.yaml")
    [fits], [over] = memory_check(params, data, 400, 64e9), memory_check(params, data, 400, 1e9)
    assert fits.level == "ok" and fits.found.startswith("about 1.0 GB to embed, ") and not fits.fix
    assert over.level == "warn" and over.found.endswith("; 1.0 GB here") and "train.states_per_pass" in over.fix
    assert memory_check(changed(params, {"encoder": {"model": "./nowhere"}}), data, 400, 64e9) == []
    agent = Params.load(ROOT / "recipes/agent_small.yaml")
    assert list(estimate_memory(agent, MINILM, data.splits.train, passages=400, words=40.0)) == ["embed"]


def test_files_are_those_that_a_stage_asks_the_disk_for_and_a_server_holds_the_index() -> None:
    """1,000,000 passages of 300 letters, width 384."""
    params, data = recipe("recipes/smoke.yaml")
    data = replace(data, contents={"a": "b" * 300})
    again = "and again in DVC's cache where it copies"
    [here] = files_check(params, data, 1_000_000, 6e9)
    assert (here.level, here.found) == (
        "ok",
        f"of 1,000,000 passages about 300 MB by download, 1.6 GB by embed, 3.4 GB by index, {again}",
    )
    served = changed(params, {"index": {"uri": "http://127.0.0.1:19530"}, "retriever": {"link_features": True}})
    [less] = files_check(served, data, 1_000_000, 1e9)
    words = "300 MB by download, 1.6 GB by embed, 900 MB by index"
    assert less.level == "warn" and less.found == (
        f"of 1,000,000 passages about {words}, {again}; 1.5 GB of memory at the Milvus server; 1.0 GB free here"
    )
    assert files_check(params, data, 0, 1e9) == []
