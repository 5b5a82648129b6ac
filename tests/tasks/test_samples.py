"""Samples of a language model, for arms played by other packages."""

from pathlib import Path

import pytest
from letters import sampling_params, save_letters

from harr.builders import players
from harr.params import Params
from harr.types import Generate
from tasks.paths import PLACES


@pytest.fixture
def params(workplace: Path) -> Params:
    return sampling_params()


def test_samples_of_a_model_differ_and_are_remembered(params: Params, tmp_path: Path) -> None:
    folder = save_letters(tmp_path / "letters", spread=0.5)
    first, second = players.open_samplers(params, PLACES, folder, 2)
    said = [player.complete([Generate(prompt="abc")]) for player in (first, second)]
    assert said[0] != said[1]
    again = players.open_samplers(params, PLACES, folder, 2)[0]
    assert again.complete([Generate(prompt="abc")]) == said[0] and again.usage()["cached"] == 1.0
