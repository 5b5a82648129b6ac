"""The encyclopaedia as a data set of params.yaml: what is loaded, and what is said of wrong settings."""

from pathlib import Path

import pytest
from encyclopaedia import encyclopaedia

from harr.datasets.download import download
from harr.datasets.preview import preview
from harr.errors import ParamsError
from harr.params.download import FunctionDatasetParams


def section(**settings: object) -> FunctionDatasetParams:
    return FunctionDatasetParams(**encyclopaedia(**settings))


def test_it_validates_with_entities_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(**more: int) -> dict[str, float]:
        params = section(passages=600, train_questions=20, test_questions=10, **more)
        return download(params, Path("data/corpus"), Path("data/questions"), Path("work"))

    counts = run()
    assert (counts["passages"], counts["train_questions"], counts["test_questions"]) == (600, 20, 10)
    before = Path("data/questions/test.jsonl").read_text()
    counts = run(validation_questions=10)
    assert (counts["train_questions"], counts["validation_questions"], counts["test_questions"]) == (20, 10, 10)
    assert Path("data/questions/test.jsonl").read_text() == before


def test_where_it_comes_from_is_named_and_wrong_settings_are_one_line() -> None:
    found = preview(section(passages=200, train_questions=4, test_questions=4), "test", [], 0, 0)
    assert found.corpus.startswith("the fictional encyclopaedia, 200 passages made from seed 0")
    with pytest.raises(ParamsError, match=r"^download\.settings: passages: should be greater than or equal to 200"):
        preview(section(passages=10), "test", [], 0, 0)
