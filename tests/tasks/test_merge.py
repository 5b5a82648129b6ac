"""A version says which data expectations held in the run that made it."""

from pathlib import Path

from harr.files import write_json
from harr.params import Params
from tasks.merge import held_expectations


def test_expectations_are_read_from_the_figures_of_the_stages_before(workplace: Path) -> None:
    params = Params.load()
    write_json(Path("metrics/download.json"), {"passages": 400.0, "expected_corpus": 5.0, "expected_questions": 6.0})
    write_json(Path("metrics/evaluate.json"), {"arms": {}, "expected_evaluation": 4.0})
    held = held_expectations(params)
    assert held == {"corpus": 5.0, "questions": 6.0, "vectors": 0.0, "index": 0.0, "filtered": 0.0, "evaluation": 4.0}
    kept = params.model_copy(update={"filter": params.filter.model_copy(update={"keep": "all"})})
    assert "all_kept" in held_expectations(kept) and "filtered" not in held_expectations(kept)
