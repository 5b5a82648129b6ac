"""A version says which data expectations held in the run that made it."""

from pathlib import Path

import yaml

from harr.files import read_json, write_json
from harr.params import Params
from tasks.merge import LLM, _note, held_expectations


def test_expectations_are_read_from_the_figures_of_the_stages_before(workplace: Path) -> None:
    params = Params.load()
    write_json(Path("metrics/download.json"), {"passages": 400.0, "expected_corpus": 5.0, "expected_questions": 6.0})
    write_json(Path("metrics/evaluate.json"), {"arms": {}, "expected_evaluation": 4.0})
    held = held_expectations(params)
    assert held == {"corpus": 5.0, "questions": 6.0, "vectors": 0.0, "index": 0.0, "filtered": 0.0, "evaluation": 4.0}
    kept = params.model_copy(update={"filter": params.filter.model_copy(update={"keep": "all"})})
    assert "all_kept" in held_expectations(kept) and "filtered" not in held_expectations(kept)


def test_the_note_of_who_played_names_no_address(workplace: Path) -> None:
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["generator"] = {"kind": "server", "model": "small", "base_url": "http://10.1.2.3:8000/v1"}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    _note(LLM, Params.load(), {"generator"})
    told = read_json(LLM / "untrained.json")["generator"]
    assert told["model"] == "small" and told["max_tokens"] == 512
    assert not {"base_url", "key_variable"} & told.keys()
