"""DVC certifies what was used: a stage starts with the parameters in its inputs, which stay unchanged."""

import hashlib
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from harr.errors import HarrError, ParamsError, StaleState
from harr.io.files import publish, write_json, write_text
from harr.params import Params
from tasks.inputs.stages import parameters
from tasks.tracking.inputs import check_settings
from tasks.tracking.run import tracked_run

INPUTS = Path("data/inputs/train.json")
WIRED = f"stages: {{train: {{deps: [{INPUTS}, data/filtered, notes.txt]}}}}"


@pytest.fixture
def place(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose stage train depends on its inputs, on a published folder and on a file."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    Path("dvc.yaml").write_text(WIRED)
    Path("notes.txt").write_text("first")
    written()
    published("first")
    return stored


def written() -> None:
    """Write the inputs of stage train from the current params.yaml."""
    write_json(INPUTS, {"parameters": dict(parameters("train", Params.load()))})


def published(text: str) -> None:
    """Publish the folder data/filtered, as a stage does."""
    write_text(Path("work/filtered/questions.jsonl"), text)
    publish(Path("work/filtered"), Path("data/filtered"))


def edited(before: str, after: str) -> None:
    """Replace a text in params.yaml."""
    text = Path("params.yaml").read_text()
    assert before in text
    Path("params.yaml").write_text(text.replace(before, after))


@pytest.mark.fault(21)
@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda: written() or INPUTS.write_text("{}"), "data/inputs/train.json was changed while stage train ran"),
        (lambda: published("second"), "data/filtered was changed while stage train ran"),
        (lambda: Path("notes.txt").write_text("other"), "notes.txt was changed while stage train ran"),
    ],
)
def test_a_stage_whose_inputs_change_while_it_runs_fails_in_a_line(change, line: str, place: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(HarrError, match=line) as failed, tracked_run("train", Params.load()):
        change()
    assert "\n" not in str(failed.value)
    client = MlflowClient(f"sqlite:///{place}/mlflow.db")
    assert {run.info.status for run in client.search_runs(["1"])} == {"FAILED"}


@pytest.mark.fault(21)
def test_params_yaml_may_change_while_a_stage_runs_and_what_ran_stays_noted(place: Path) -> None:
    with tracked_run("train", Params.load()):
        edited("learning_rate: 5.0e-4", "learning_rate: 1.0e-6")
        published("first")
        Path("elsewhere.txt").write_text("new")
    client = MlflowClient(f"sqlite:///{place}/mlflow.db")
    assert {run.info.status for run in client.search_runs(["1"])} == {"FINISHED"}


@pytest.mark.fault(21)
def test_a_stage_begins_with_no_other_parameters_than_dvc_will_note(place: Path) -> None:
    edited("registered_model: harr-smoke", "registered_model: other")  # not a parameter of train
    edited("learning_rate: 5.0e-4", "learning_rate: 0.0005")  # the same number
    with tracked_run("train", Params.load()):
        pass
    edited("learning_rate: 0.0005", "learning_rate: 1.0e-6")
    message = (
        r"params\.yaml is not what data/inputs/train\.json says \(train\.optimizer\.learning_rate: 0\.0005 -> 1e-06\)"
    )
    with pytest.raises(StaleState, match=message), tracked_run("train", Params.load()):
        pytest.fail("it must not begin")
    written()
    with tracked_run("train", Params.load()):
        pass


@pytest.mark.fault(21)
def test_a_model_is_known_by_the_parameters_that_it_was_made_with(place: Path) -> None:
    with pytest.raises(ParamsError, match=r"dvc\.lock does not name the parameters with which stage train ran"):
        check_settings(Params.load())
    digest = hashlib.md5(INPUTS.read_bytes(), usedforsecurity=False).hexdigest()
    noted = {"stages": {"train": {"deps": [{"path": str(INPUTS), "md5": digest}]}}}
    Path("dvc.lock").write_text(yaml.safe_dump(noted))
    check_settings(Params.load())
    edited("seed: 0", "seed: 7")
    with pytest.raises(ParamsError, match=r"params\.yaml is not what stage train ran with \(seed: 0 -> 7\)"):
        check_settings(Params.load())
    written()
    with pytest.raises(ParamsError, match=r"stage train did not run with what data/inputs/train\.json says"):
        check_settings(Params.load())
    check_settings(Params.load(), but="train")
