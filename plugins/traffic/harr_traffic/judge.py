"""What a model would have earned on logged searches: `harr replay`."""

from pathlib import Path
from typing import TYPE_CHECKING

from tasks.paths import QUESTIONS

if TYPE_CHECKING:
    from harr_traffic.log import LoggedSearch
    from harr_traffic.preference import Compared
    from harr_traffic.replay import Replayed


def replay_log(log: Path, model: str, project: Path, out: Path | None) -> list[str]:
    """Judge a model by a log, and write the figures to ``out`` if given.

    Without a model, judge the shadow candidates that ranked the searches (preference.py).

    Returns:
        The lines of the table.

    Raises:
        ParamsError, DamagedFile: there is no log, or this model cannot be judged by it.
        CorpusError: the log says too little about the model.
    """
    from harr.io.files import write_json

    if model:
        found = replayed(log, model, project)
        figures, lines = found.figures(), found.lines()
    else:
        every = compared(log, project)
        figures, lines = (
            {"candidates": [one.figures() for one in every]},
            [line for one in every for line in one.lines()],
        )
    if out:
        write_json(out, figures)
    return lines


def replayed(log: Path, model: str, project: Path) -> "Replayed":
    """Return what a model would have earned, over the index of a project.

    Questions that the project trains on are left out: a model looks too good on what it learnt from.

    Raises:
        HarrError: as :func:`replay_log`.
    """
    from harr.builders.trained import TrainedRetriever
    from harr.errors import ModelError
    from harr.rag.policies.dense import DensePolicy
    from harr_traffic.log import read_log
    from harr_traffic.replay import replay

    searches, outcomes = read_log(log)
    searches = _not_learnt(searches, project)
    with TrainedRetriever.load(model, index=project) as retriever:
        if not isinstance(retriever.policy, DensePolicy):
            raise ModelError(
                f"{model} does not rank by vectors, so it has no chances to be judged by; name one that does"
            )
        return replay(retriever.policy, searches, outcomes)


def compared(log: Path, project: Path) -> "list[Compared]":
    """Return what a log says about the candidates that ranked its searches; no model is loaded.

    Raises:
        HarrError: as :func:`replay_log`.
    """
    from harr_traffic.log import read_log
    from harr_traffic.preference import compare
    from harr_traffic.shadows import read_shadows

    searches, outcomes = read_log(log)
    return compare(_not_learnt(searches, project), outcomes, read_shadows(log))


def _not_learnt(searches: "list[LoggedSearch]", project: Path) -> "list[LoggedSearch]":
    """Leave out searches for questions that the project trains on, in whatever case and punctuation."""
    from harr.corpus.passages import read_questions
    from harr.errors import ParamsError
    from harr.types import Question

    if not project.is_dir():
        raise ParamsError(f"--index {project} is no folder; name that of the project whose questions were trained on")
    if not (learnt := project / QUESTIONS / "train.jsonl").exists():
        return searches
    questions = read_questions(learnt)
    known = {question.text for question in questions} | {question.identity for question in questions}
    return [one for one in searches if known.isdisjoint({one.question, Question("", one.question or "").identity})]
