"""What a model would have earned on logged searches: `harr replay`."""

from pathlib import Path
from typing import TYPE_CHECKING

from tasks.paths import QUESTIONS

if TYPE_CHECKING:
    from harr.traffic.replay import Replayed


def replay_log(log: Path, model: str, project: Path, out: Path | None) -> list[str]:
    """Judge a model by a log, and write the figures where ``out`` names a file.

    Returns:
        The table.

    Raises:
        ParamsError, DamagedFile: the log is none, or holds what this model cannot be judged by.
        CorpusError: it says too little of the model.
    """
    from harr.io.files import write_json

    found = replayed(log, model, project)
    if out:
        write_json(out, found.told())
    return found.lines()


def replayed(log: Path, model: str, project: Path) -> "Replayed":
    """Return what a model would have earned, over the index of a project.

    Questions that the project trains on are left out: a model is judged too well by what it learnt from.

    Raises:
        HarrError: as :func:`replay_log`.
    """
    from harr.corpus.passages import read_questions
    from harr.library.trained import TrainedRetriever
    from harr.traffic.log import read_log
    from harr.traffic.replay import replay

    searches, outcomes = read_log(log)
    if (learnt := project / QUESTIONS / "train.jsonl").exists():
        texts = {question.text for question in read_questions(learnt)}
        searches = [one for one in searches if one.question not in texts]
    with TrainedRetriever.load(model, index=project) as retriever:
        return replay(retriever.policy, searches, outcomes)
