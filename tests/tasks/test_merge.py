"""A version says which data expectations its run met."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.errors import DamagedFile
from harr.io.files import publish, read_json, write_json
from harr.params import Params
from tasks.merge import _note, count_expectations, merge_adapter, register_model
from tasks.paths import LANGUAGE_MODEL
from tasks.play import arm_pipelines
from tasks.registry.gate import _index
from tasks.report import run_facts


def test_expectations_are_read_from_the_figures_of_the_stages_before(workplace: Path) -> None:
    params = Params.load()
    write_json(Path("metrics/download.json"), {"passages": 400.0, "expected_corpus": 5.0, "expected_questions": 6.0})
    write_json(Path("metrics/evaluate.json"), {"arms": {}, "expected_evaluation": 4.0})
    counts = count_expectations(params)
    assert counts == {"corpus": 5.0, "questions": 6.0, "vectors": 0.0, "index": 0.0, "filtered": 0.0, "evaluation": 4.0}
    kept = params.model_copy(update={"filter": params.filter.model_copy(update={"keep": "all"})})
    assert "all_kept" in count_expectations(kept) and "filtered" not in count_expectations(kept)


READERS: list[tuple[str, Callable[[Params], object]]] = [
    ("smoke", merge_adapter),
    ("agent_small", merge_adapter),
    ("smoke", lambda params: register_model(None, params)),
    ("smoke", run_facts),
    ("leret_small", arm_pipelines),
]


@pytest.mark.parametrize(("recipe", "body"), READERS)
def test_the_manifest_of_the_vectors_is_compared_with_its_hash(
    recipe: str, body: Callable[[Params], object], workplace: Path
) -> None:
    params = Params.load(Path(f"recipes/{recipe}.yaml"))
    with pytest.raises(DamagedFile, match=r"data/vectors/manifest.json is missing.*; run `dvc repro -f -s embed`"):
        body(params)
    write_json(Path("work/vectors/manifest.json"), {"identity": "abcdef", "rows": 4, "dtype": "float32", "shards": []})
    publish(Path("work/vectors"), Path("data/vectors"))
    manifest = Path("data/vectors/manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b"abcdef", b"abcdeg"))
    with pytest.raises(DamagedFile, match=r"data/vectors/manifest.json is damaged .*; run `dvc repro -f -s embed`"):
        body(params)
    candidate: Any = type("Candidate", (), {"tags": {"index": "abcdeg"}})
    assert not _index(candidate).passed
    assert not Path("models").exists()


@pytest.mark.fault(30)
def test_the_note_of_who_played_names_no_address(workplace: Path) -> None:
    values = yaml.safe_load(Path("params.yaml").read_text())
    values["generator"] = {"kind": "server", "model": "small", "server": {"urls": ["http://10.1.2.3:8000/v1"]}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    _note(LANGUAGE_MODEL, Params.load(), {"generator"})
    generator = read_json(LANGUAGE_MODEL / "untrained.json")["generator"]
    assert generator["model"] == "small" and generator["max_tokens"] == 512
    assert "server" not in generator
