"""Every method trains on a pretended GPU: nothing stays on the CPU, and waits do not grow with a step's size.

The results equal a CPU's; a fault of the pretended GPU would show there, too.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from letters import AGENT, letters_setup, nothing
from preferred import preferred_game, quick_leret
from pretended_gpu import pretended_gpu
from runs import killed_at, weights
from short_runs import TWO_STEPS

from harr.builders.methods import METHODS
from harr.io.files import SUMS, read_json, write_json
from harr.params.loop import CheckpointParams
from harr.params.train import GRPOParams, PPOParams, PQNParams
from harr.params.train_facts import LoraParams
from harr.rag.setup import Setup
from harr.train.infonce import train as infonce

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")  # there is no driver to pin it
COMMON: dict[str, Any] = {**TWO_STEPS, "checkpoints": CheckpointParams(every=9), "states_per_pass": 64}
KINDS = {
    "grpo": GRPOParams(method="grpo", kl_weight=1e-3, **COMMON),
    "full": GRPOParams(method="grpo", **COMMON | {"lora": None}),
    "infonce": GRPOParams(method="grpo", **COMMON),
    "ppo": PPOParams(method="ppo", kl_weight=1e-3, **COMMON),
    "critic": PPOParams(method="ppo", critic="encoder", kl_estimator="k3", kl_weight=1e-3, **COMMON),
    "pqn": PQNParams(method="pqn", **{name: value for name, value in COMMON.items() if name != "infonce"}),
}
WAITS = {"grpo": 6, "full": 5, "infonce": 5, "ppo": 9, "critic": 11, "pqn": 14}
"""Most waits in a step: a library's own per encoder pass, the vectors of a search, the figures of a pass."""


def nearly_equal(one: Path, two: Path) -> bool:
    """Return whether two trainings ended with the same weights, up to the order of sums."""
    first, second = weights(one), weights(two)
    return first.keys() == second.keys() and all(
        first[name].allclose(second[name], atol=1e-5, rtol=1e-3) for name in first
    )


def test_the_pretended_gpu_refuses_what_a_gpu_refuses() -> None:
    with pretended_gpu() as gpu:
        layer, row = torch.nn.Linear(2, 2), torch.ones(1, 2)
        weight = layer.weight
        layer.to("cuda")
        assert layer.weight is weight, "an optimizer keeps what it has"
        for refused, why in (
            (lambda: layer(row), "same device"),
            (lambda: torch.rand(2, device="cuda", generator=torch.Generator()), "device type for generator"),
            (lambda: weight.detach().numpy(), "to numpy"),
            (lambda: torch.ops.mkldnn._linear_pointwise(weight, weight, None, "none", [], "none"), "no kernel"),
        ):
            with pytest.raises((RuntimeError, TypeError), match=why):
                refused()
        assert not gpu.waits
        made = layer(row.to("cuda")).detach()
        assert made.cpu().tolist() == layer.cpu()(row).tolist(), "the same numbers"
        float(made.sum())
        host = torch.zeros(1, 2)
        assert type(host.copy_(made)) is torch.Tensor and host.tolist() == made.tolist()
    assert gpu.waits.total() == 1 + 2 + 1 + 2, "a result, two weights, a number, two results"


@pytest.mark.parametrize("kind", KINDS)
def test_a_retriever_learns_as_on_a_cpu_and_waits_no_oftener_for_more_rows(
    kind: str, fresh: Callable[[], Setup], towers: Callable[..., Setup], tmp_path: Path
) -> None:
    def run(name: str, gpu: Any, questions: int) -> Counter[str]:
        """Return the second step's waits by line."""
        seen: list[Counter[str]] = []
        setup = towers("relative", picks=2) if kind == "pqn" else fresh()
        params = KINDS[kind].model_copy(update={"questions_per_step": questions})
        train = infonce if kind == "infonce" else METHODS[params.method].train
        log = (lambda step, values: seen.append(gpu.waits.copy())) if gpu else nothing
        train(params, setup, tmp_path / name, tmp_path / f"w-{name}", log, 0)
        return seen[1] - seen[0] if gpu else Counter()

    run("cpu", None, 3)
    with pretended_gpu() as gpu:
        few, many = (run(f"gpu-{questions}", gpu, questions) for questions in (3, 6))
    assert nearly_equal(tmp_path / "cpu", tmp_path / "gpu-3")
    assert few == many
    assert few.total() <= WAITS[kind], few


def test_float16_scales_neither_the_gradients_figures_nor_forgets_its_scale(
    fresh: Callable[[], Setup], tmp_path: Path
) -> None:
    def run(precision: str, log: Any = nothing, steps: int = 1) -> list[dict[str, Any]]:
        work = tmp_path / f"work-{precision}-{steps}"
        optimizer = COMMON["optimizer"].model_copy(update={"precision": precision})
        changes = {
            "optimizer": optimizer,
            "states_per_pass": 4,
            "steps": steps,
            "checkpoints": CheckpointParams(every=1),
        }
        params = KINDS["grpo"].model_copy(update=changes)
        return METHODS["grpo"].train(params, fresh(), tmp_path / precision, work, log, 0)

    with pretended_gpu():
        (whole,) = run("float32")
    with pretended_gpu():
        (half,) = run("float16")
        assert half["gradient_variance"] == pytest.approx(whole["gradient_variance"], rel=1e-3)
        with pytest.raises(KeyboardInterrupt):
            run("float16", killed_at(1), steps=4)
        (saved,) = (tmp_path / "work-float16-4").glob("*/checkpoint-000001")
        state = read_json(saved / "state.json")
        assert state["scaler"]["scale"] == 65536.0
        write_json(saved / "state.json", state | {"scaler": state["scaler"] | {"scale": 128.0}})
        (saved / SUMS).unlink()
        run("float16", steps=4)
    (last,) = (tmp_path / "work-float16-4").glob("*/checkpoint-000004")
    assert read_json(last / "state.json")["scaler"]["scale"] == 128.0, "where it was when the run was killed"


@pytest.mark.parametrize("lora", [None, LoraParams(rank=4, alpha=16)], ids=["full", "lora"])
@pytest.mark.parametrize("method", ["agent", "leret"])
def test_a_language_model_learns_as_on_a_cpu(method: str, lora: LoraParams | None, tmp_path: Path) -> None:
    for name, place in (("cpu", nullcontext()), ("gpu", pretended_gpu())):
        folder = tmp_path / f"data-{name}"
        folder.mkdir()
        if method == "agent":
            setup, params = letters_setup(folder / "letters"), AGENT.model_copy(update={"steps": 1, "lora": lora})
        else:
            setup, params = preferred_game(folder), quick_leret(lora=lora, sft_epochs=1, ipo_epochs=1)
        with place:
            METHODS[method].train(params, setup, tmp_path / name, tmp_path / f"w-{name}", nothing, 0)
    assert nearly_equal(tmp_path / "cpu", tmp_path / "gpu")
