"""All stages on a pretended GPU, with every kind of trained arm: the results equal a CPU's."""

from pathlib import Path
from typing import Any

import pytest
from pretended_gpu import pretended_gpu
from stages import SMOKE, Ran, run_stages, world_params

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")  # there is no driver to pin it
ARMS = ["frozen", "infonce", "links_alone", "query_adapter", "trained"]


def test_the_stages_reach_on_a_gpu_what_they_reach_on_a_cpu(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str) -> Ran:
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        return run_stages(world_params(tiny, **changes))

    changes: dict[str, Any] = {
        "retriever": SMOKE["retriever"] | {"link_features": "harr_links.tables:open_links"},
        "evaluate": SMOKE["evaluate"] | {"arms": ARMS, "seeds": 1},
    }
    on_cpu = run("cpu")
    with pretended_gpu():
        on_gpu = run("gpu")
    assert on_gpu.summary["arms"] == on_cpu.summary["arms"]
    assert on_gpu.merged == pytest.approx(on_cpu.merged, abs=1e-5)
