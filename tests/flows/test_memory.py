"""What `harr preview` says a recipe will hold, beside what its stages held, and what makes it more or less."""

import gc
import weakref
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Qwen3Config, Qwen3Model

from flows.checks import TEXT_BYTES, files_check, memory_check, time_check
from harr.datasets.preview import Data, read_data
from harr.index.kinds import memory_bytes
from harr.params import Params
from harr.params.loop import OptimizerParams
from harr.params.train_facts import LoraParams
from harr.types import Question
from tasks.runtime import memory
from tasks.runtime.limits import Sizes, written
from tasks.runtime.memory import WORDS, Shape, estimate_agent_gpu, estimate_gpu, estimate_memory, shape_of

ROOT = Path(__file__).parents[2]
MINILM = Shape(weights=22_713_728, width=384, inner=1536, layers=6, queries=384, keys=384)
NOISE = "harr_encyclopaedia.dataset:noise"
STORIES = {"task": 2, "noise": NOISE, "sentences": 100, "train_questions": 400, "test_questions": 60}
FEW = {"download": {"settings": STORIES}}
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
    assert shape_of(tiny) == Shape(
        weights=words + 2 * layer + 64 * 64 + 64, width=64, inner=128, layers=2, queries=64, keys=64
    )
    assert shape_of("./nowhere") is None


def test_what_is_told_is_what_stages_held_within_a_third() -> None:
    for name, changes, measured in MEASURED:
        params = changed(Params.load(ROOT / name), changes)
        data = read_data(params.download)
        words = sum(len(text.split()) for text in data.contents.values()) / len(data.contents)
        found = estimate_memory(params, MINILM, data.splits.train, passages=len(data.ids or ()), words=words)
        for stage, peak in measured.items():
            assert 3 / 4 < found[stage] / 1e9 / peak < 4 / 3, (name, stage, found[stage], peak)


class Peak(TorchDispatchMode):
    """The most bytes of storages that were made inside and lived at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.most, self.known = 0, 0, set[int]()

    def _free(self, key: int, size: int) -> None:
        self.live -= size
        self.known.discard(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for storage in (one.untyped_storage() for one in tree_leaves(made) if isinstance(one, torch.Tensor)):
            if storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.live += storage.nbytes()
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.live)
        return made


def held_by_a_step(config: Qwen3Config, tokens: int, *, recompute: bool, stored: torch.dtype = torch.float32) -> int:
    """The bytes of a step of a LoRA as Learner makes it, by torch's fake tensors, which have no numbers."""
    with FakeTensorMode(), Peak() as peak:
        base = Qwen3Model(config).eval()
        for weight in base.parameters():
            weight.data = weight.data.to(stored)
        model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear"))
        for layer in model.modules():  # halve_frozen: to() does not know fake tensors
            if type(layer) is torch.nn.Linear and not layer.weight.requires_grad:
                layer.weight = torch.nn.Parameter(layer.weight.detach().bfloat16(), requires_grad=False)
        if recompute:
            model.base_model.model.gradient_checkpointing_enable({"use_reentrant": False})
            model.train()
        optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
        gc.collect()
        peak.most = 0
        ids = torch.ones(4, tokens // 4, dtype=torch.long)
        with torch.autocast("cpu", torch.bfloat16):
            states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        states[:, -1].float().square().sum().backward()
        optimizer.step()
    return peak.most


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("width", "inner", "heads", "recompute"),
    [(1024, 3072, 16, False), (2560, 9728, 32, True), (4096, 12288, 32, False)],
    ids=["0.6B", "4B-recomputed", "8B"],
)
def test_a_gpu_holds_what_torch_counts_within_a_third(
    width: int, inner: int, heads: int, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen3's layers, four of them, and a small vocabulary."""
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, *_, **__: module)
    monkeypatch.setattr(memory, "_tokens", lambda *_: 4096.0)
    shape = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 4, "num_attention_heads": heads}
    config = Qwen3Config(**shape, head_dim=128, num_key_value_heads=8, vocab_size=1000)
    linear = 4 * width * (2 * heads * 128 + 2 * 1024 + 3 * inner)
    found = Shape(linear + 1000 * width, width, inner, layers=4, queries=heads * 128, keys=1024, gated=True)
    optimizer = OptimizerParams(precision="bfloat16", gradient_checkpointing=recompute)
    params = changed(
        Params.load(ROOT / "recipes/harr_wiki18_0.6b.yaml"),
        {"train": {"optimizer": optimizer, "lora": LoraParams(rank=16)}},
    )
    told = estimate_gpu(params, found, [], words=100.0) - memory.CONTEXT
    assert 3 / 4 < told / held_by_a_step(config, 4096, recompute=recompute) < 4 / 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recompute", [False, True])
def test_a_language_model_that_learns_holds_what_torch_counts_within_a_third(
    recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers of 8B, eight of them, one episode of 4,096 tokens."""
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, *_, **__: module)
    shape = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 8, "num_attention_heads": 32}
    config = Qwen3Config(**shape, head_dim=128, num_key_value_heads=8, vocab_size=1000)
    linear = 8 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 12288)
    model = Shape(linear + 1000 * 4096, 4096, 12288, layers=8, queries=4096, keys=1024, gated=True)
    recipe = Params.load(ROOT / "recipes/medquad_agent.yaml")
    optimizer = recipe.train.optimizer.model_copy(update={"gradient_checkpointing": recompute})
    params = changed(recipe, {"train": {"optimizer": optimizer, "episodes_per_pass": 1}})
    nothing = Shape(0, 1, 1, 0, 0, 0)
    held = estimate_agent_gpu(params, model, nothing, words=62.4) - memory.CONTEXT  # 62.4 words: 4,346 tokens
    held -= 8 * 4096 * 4346
    measured = held_by_a_step(config, 4344, recompute=recompute, stored=torch.bfloat16)
    assert 3 / 4 < held / measured < 4 / 3, (held / 1e9, measured / 1e9)


def test_a_recipe_that_outgrows_the_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    params, data = recipe("recipes/smoke.yaml")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for size, levels in ((24e9, ["ok"]), (0.5e9, ["ok", "warn"])):
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _, size=size: SimpleNamespace(total_memory=size)
        )
        found = memory_check(params, data, 400, 64e9)
        assert [one.level for one in found] == levels
    assert (
        found[-1].found.startswith("train needs about 0.")
        and "of the GPU's 0.5 GB; lower train.states" in found[-1].found
    )


@pytest.mark.parametrize(("size", "level"), [(24e9, "ok"), (16e9, "warn")])
def test_an_agent_that_outgrows_the_gpu_is_named(size: float, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params = Params.load(ROOT / "recipes/medquad_agent.yaml")
    shapes = {params.generator.model: QWEN_7B, params.encoder.model: E5}
    monkeypatch.setattr(memory, "shape_of", shapes.get)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=size))
    shortage = memory.gpu_shortage(params, [Question("q", "Who?")], WORDS)
    assert bool(shortage) == (level == "warn")
    assert not shortage or shortage.startswith(
        "train needs about 23.5 GB of the GPU's 16.0 GB; lower train.episodes_per_pass and sampled_at_once"
    )


def test_too_much_is_a_warning_and_what_is_not_known_is_not_told() -> None:
    params, data = recipe("recipes/smoke.yaml")
    [fits], [over] = memory_check(params, data, 400, 64e9), memory_check(params, data, 400, 1e9)
    assert fits.level == "ok" and fits.found.startswith("about 1.0 GB to embed, ") and not fits.fix
    assert over.level == "warn" and over.found.endswith("; 1.0 GB here") and "train.states_per_pass" in over.fix
    assert memory_check(changed(params, {"encoder": {"model": "./nowhere"}}), data, 400, 64e9) == []
    agent = Params.load(ROOT / "recipes/agent_small.yaml")
    assert list(estimate_memory(agent, MINILM, data.splits.train, passages=400, words=40.0)) == ["embed"]


QWEN = Shape(595_776_512, width=1024, inner=3072, layers=28, queries=2048, keys=1024, gated=True)
QWEN_7B = Shape(7_615_616_512, width=3584, inner=18944, layers=28, queries=3584, keys=512, gated=True)
E5 = Shape(559_890_432, width=1024, inner=4096, layers=24, queries=1024, keys=1024)


@pytest.mark.parametrize(
    ("name", "shape", "passages"), [("harr_wiki18_0.6b", QWEN, 21_015_324), ("medquad_agent", E5, 20_000)]
)
def test_the_page_on_scale_has_what_is_estimated(name: str, shape: Shape, passages: int) -> None:
    params = Params.load(ROOT / f"recipes/{name}.yaml")
    questions = [Question("q", "Who was the founder of the firm in Ashford, then?")]
    size = Sizes(passages, shape.width, round(TEXT_BYTES * passages))
    memory_of = estimate_memory(params, shape, questions, passages=passages, words=WORDS)
    on_gpu = (
        estimate_agent_gpu(params, QWEN_7B, shape, words=WORDS)
        if params.language_model_learns
        else estimate_gpu(params, shape, questions, words=WORDS)
    )
    model = QWEN_7B if params.language_model_learns else None
    seconds = memory.estimate_gpu_seconds(params, model, shape, passages=passages, words=WORDS)
    columns = [
        f"`{name}`, {passages:,}",
        ", ".join(f"{count / 1e9:.1f}" for count in (size.text, *written(params, size).values())),
        ", ".join(f"{count / 1e9:.1f}" for count in memory_of.values()),
        f"{on_gpu / 1e9:.1f}",
        ", ".join(f"{count / 8 / 60:.0f}" for count in seconds.values()),
        f"{memory_bytes(params.index, passages, shape.width) / 1e9:.1f}",
    ]
    assert f"| {' | '.join(columns)} |" in (ROOT / "docs/scale.md").read_text()


def test_the_time_of_gpus_is_that_of_the_page_on_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.69 GPU hours for wiki18 with a 0.6B encoder at 130 tokens a passage, and 8 hours for 100 steps of the agent."""
    words = 130 / memory.TOKENS_A_WORD
    params = Params.load(ROOT / "recipes/harr_wiki18_0.6b.yaml")
    (seconds,) = memory.estimate_gpu_seconds(params, None, QWEN, passages=21_015_324, words=words).values()
    assert seconds / 3600 == pytest.approx(1.69, abs=0.01)
    agent = Params.load(ROOT / "recipes/medquad_agent.yaml")
    seconds = memory.estimate_gpu_seconds(agent, QWEN_7B, E5, passages=20_000, words=words)["train"]
    assert 8 < seconds / 3600 < 10, "3,700 tokens an episode there, and the longest here"
    shapes = {params.encoder.model: QWEN}
    monkeypatch.setattr("flows.checks.shape_of", shapes.get)
    data = Data(None, None, {}, {}, [])  # type: ignore[arg-type]
    [found] = time_check(params, data, 21_015_324, 8)
    assert found.found.startswith("of 8 GPUs at 396 TFLOP/s each about 14 minutes to embed")
    [found] = time_check(params, data, 20_000, 8)
    assert "about 1 s to embed" in found.found
    assert time_check(params, data, 21_015_324, 0) == []
    shapes.clear()
    [found] = time_check(params, data, 20_000, 8)
    assert found.level == "warn" and found.found == f"the size of {params.encoder.model} is unknown, it is not here"


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
