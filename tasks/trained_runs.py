"""The trained runs, their folders and their figures."""

from pathlib import Path

from harr.arms import TRAINED
from harr.io.files import read_json
from harr.params import Params
from tasks.paths import ADAPTER, ARMS

TOLD = "runs.json"
"""Name of the file in models/arms with the figures of its runs."""


def trained_runs(params: Params) -> dict[str, list[Path]]:
    """Return the folders of every trained arm, one per seed; the first of ``trained`` is stage train's."""
    seeds = range(params.seed, params.seed + params.evaluate.seeds)
    trained = [ADAPTER, *(ARMS / f"{TRAINED}-{seed}" for seed in seeds[1:])]
    folders = {name: [ARMS / f"{name}-{seed}" for seed in seeds] for name in params.evaluate.arm_table} | {
        TRAINED: trained
    }
    return {
        name: [folder / arm.inside for folder in trained] if arm.inside else folders[name]
        for name, arm in params.evaluate.arm_table.items()
        if arm.trained
    }


def read_run_figures() -> dict[str, dict[str, float]]:
    """Return the figures of stage arms' runs (:func:`tasks.arms.run_figures`), by folder name."""
    path = ARMS / TOLD
    return read_json(path) if path.exists() else {}
