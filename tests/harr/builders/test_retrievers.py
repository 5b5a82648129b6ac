"""Two trained towers are played as they were trained, or refused."""

import shutil
from pathlib import Path

import pytest

from harr.builders.retrievers import trained_towers
from harr.errors import ModelError
from harr.io.files import write_json
from harr.params.embed import EncoderParams
from harr.params.retriever import RetrieverParams

ENCODER = EncoderParams(max_tokens=32, normalize=False)
RETRIEVER = RetrieverParams(positions="relative_whole", value_scale=0.01, candidates="question", state="sep")


def test_towers_are_not_played_with_other_values(tmp_path: Path, tiny: str) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    with pytest.raises(ModelError, match=r"holds no tower of actions .*; train with train\.method: pqn"):
        trained_towers(ENCODER, RETRIEVER, model)
    shutil.copytree(tiny, model / "document")
    write_json(model / "harr.json", {"positions": "relative_whole", "value_scale": 0.01, "normalize": False})
    assert trained_towers(ENCODER, RETRIEVER, model).scale == 0.01
    with pytest.raises(ModelError, match=r"trained with retriever.value_scale 0\.01, params\.yaml says 2\.0"):
        trained_towers(ENCODER, RETRIEVER.model_copy(update={"value_scale": 2.0}), model)
    with pytest.raises(ModelError, match=r"trained with encoder\.normalize False"):
        trained_towers(EncoderParams(max_tokens=32), RETRIEVER, model)
