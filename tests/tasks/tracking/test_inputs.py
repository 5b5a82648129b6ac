"""What was changed while a stage ran is told, and nothing is certified that was not used."""

import hashlib
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from harr.errors import HarrError, ParamsError
from harr.io.files import publish, write_text
from harr.params import Params
from tasks.tracking.run import tracked_run

WIRED = """
stages:
  train:
    params: [seed, train, evaluate.arms, {code.json: [harr/train]}]
    deps: [data/filtered, harr/train, notes.txt]
"""


@pytest.fixture
def place(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose stage train depends on a published folder, on code and on a file."""
    monkeypatch.setenv("HARR_EXECUTION", "one")
    Path("dvc.yaml").write_text(WIRED)
    Path("notes.txt").write_text("first")
    Path("code.json").write_text("{}")
    published("first")
    return stored


def published(text: str) -> None:
    """The folder data/filtered, as a stage leaves it."""
    write_text(Path("work/filtered/questions.jsonl"), text)
    publish(Path("work/filtered"), Path("data/filtered"))


def edited(before: str, after: str) -> None:
    """params.yaml with another text in it."""
    text = Path("params.yaml").read_text()
    assert before in text
    Path("params.yaml").write_text(text.replace(before, after))


@pytest.mark.fault(21)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: edited("learning_rate: 5.0e-4", "learning_rate: 1.0e-6"), "it ran with 0.0005, now it is 1e-06"),
        (lambda: edited("seed: 0", "seed: 7"), r"params.yaml was changed while stage train ran \(seed: it ran with 0"),
        (lambda: Path("params.yaml").write_text("seed: ["), "params.yaml: not valid YAML"),
        (lambda: published("second"), "data/filtered was changed while stage train ran"),
        (lambda: Path("code.json").write_text("[1]"), "code.json was changed while stage train ran"),
        (lambda: Path("notes.txt").write_text("other"), "notes.txt was changed while stage train ran"),
    ],
)
def test_a_stage_whose_inputs_change_while_it_runs_fails_in_a_line(change, told: str, place: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(HarrError, match=told) as failed, tracked_run("train", Params.load()):
        change()
    assert "\n" not in str(failed.value)
    client = MlflowClient(f"sqlite:///{place}/mlflow.db")
    assert {run.info.status for run in client.search_runs(["1"])} == {"FAILED"}


@pytest.mark.fault(21)
def test_what_a_stage_does_not_read_may_change_and_so_may_the_writing(place: Path) -> None:
    with tracked_run("train", Params.load()):
        edited("registered_model: harr-smoke", "registered_model: other")
        edited("learning_rate: 5.0e-4", "learning_rate: 0.0005")
        published("first")
        Path("elsewhere.txt").write_text("new")
    client = MlflowClient(f"sqlite:///{place}/mlflow.db")
    assert {run.info.status for run in client.search_runs(["1"])} == {"FINISHED"}


def noted() -> None:
    """What DVC notes when stage train has ended: the parameters that are in params.yaml by then, and what it made."""
    values = yaml.safe_load(Path("params.yaml").read_text())
    used = {"seed": values["seed"], "train": values["train"], "evaluate.arms": values["evaluate"]["arms"]}
    made = {"path": "metrics/train.json", "md5": hashlib.md5(Path("metrics/train.json").read_bytes()).hexdigest()}
    entry = {"params": {"params.yaml": used, "code.json": {"harr/train": "1"}}, "outs": [made]}
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": {"train": entry}}))


def trained() -> None:
    """Stage train, which ends well."""
    with tracked_run("train", Params.load()) as run:
        run.record("train", {"reward": 0.5})


@pytest.mark.fault(21)
def test_an_edit_between_the_end_of_a_stage_and_the_note_of_dvc_is_found_by_whoever_builds_on_it(place: Path) -> None:
    """The stage has looked for the last time, and DVC reads params.yaml a second later."""
    trained()
    noted()
    for stage in ("arms", "register", "train"):
        with tracked_run(stage, Params.load()):
            pass
    trained()
    edited("learning_rate: 5.0e-4", "learning_rate: 1.0e-6")
    noted()
    for stage in ("arms", "register"):
        with (
            pytest.raises(
                ParamsError, match=r"dvc\.lock has other parameters of stage train .* `dvc repro -f -s train`"
            ),
            tracked_run(stage, Params.load()),
        ):
            pytest.fail("it must not begin")
    trained()  # what the line says
    noted()
    with tracked_run("arms", Params.load()):
        pass
    edited("learning_rate: 1.0e-6", "learning_rate: 2.0e-6")
    with tracked_run("train", Params.load()) as run:
        run.record("train", {"reward": 0.6})  # by hand, with other parameters; DVC itself sees that it has not noted it
    with tracked_run("arms", Params.load()):
        pass
