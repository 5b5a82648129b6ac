"""What a model would have earned on logged searches: `harr replay`."""

from pathlib import Path


def replay_log(log: Path, model: str, project: Path, out: Path | None) -> list[str]:
    """Judge a model by a log, and write the figures where ``out`` names a file.

    Returns:
        The table.

    Raises:
        ParamsError, DamagedFile: the log is none, or holds what this model cannot be judged by.
        CorpusError: it says too little of the model.
    """
    from harr.io.files import write_json
    from harr.library.trained import TrainedRetriever
    from harr.traffic.log import read_log
    from harr.traffic.replay import replay

    searches, outcomes = read_log(log)
    with TrainedRetriever.load(model, index=project) as retriever:
        found = replay(retriever.policy, searches, outcomes)
    if out:
        write_json(out, found.told())
    return found.lines()
