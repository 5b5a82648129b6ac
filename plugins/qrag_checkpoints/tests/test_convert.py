"""`harr convert`: a checkpoint of Q-RAG's code becomes a folder that the other commands play."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from flows import cli
from harr.builders.retrievers import trained_towers
from harr.embed.encoder import Encoder
from harr.io.files import read_json
from harr.params import Params


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main("convert", *words)
    return int(end.value.code or 0)


def test_the_command_writes_a_model_with_all_that_its_players_ask_for(
    workplace: Path, tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both towers are as the base is, under the names of their code; other methods and files are one line."""
    values = yaml.safe_load(Path("recipes/qrag_babilong_qa1_published.yaml").read_text())
    values["encoder"]["model"] = tiny
    values["download"]["settings"] |= {"noise": "repeated", "train": [], "test": []}
    Path("run.yaml").write_text(yaml.safe_dump(values))
    weights: dict[str, Any] = Encoder(tiny, max_tokens=32).model[0].auto_model.state_dict()
    prefixes = ("state_embed.model.", "action_embed.model.model.")
    torch.save({"critic": {f"{p}{name}": own for p in prefixes for name, own in weights.items()}}, "model.pt")
    assert command("model.pt", "model", "--params", "run.yaml") == 0
    assert capsys.readouterr().out.strip().endswith("model")
    params = Params.load(Path("run.yaml"))
    towers = trained_towers(params.encoder, params.retriever, Path("model"))
    assert (towers.mode, towers.scale, towers.states.normalize) == ("relative_whole", 0.01, False)
    known = read_json(Path("model/harr.json"))
    assert known["base_model"] == tiny and known["encoder"]["normalize"] is False
    assert "encode_query" in Path("model/README.md").read_text()

    assert command("model.pt", "model", "--params", "run.yaml") == command("model.pt", ".", "--params", "run.yaml") == 1
    assert "error: model is there already; remove it, or name another folder" in capsys.readouterr().err
    assert Path("model.pt").exists()

    Path("other.pt").write_text("nothing")
    assert command("other.pt", "other") == 1
    assert "trains no two towers; take a recipe qrag_..._published.yaml" in capsys.readouterr().err
    assert command("other.pt", "other", "--params", "run.yaml") == 1
    assert "other.pt is no checkpoint of Q-RAG's code" in capsys.readouterr().err
    assert not Path("other").exists()
