"""A table of the report with every arm's metric by turn number (``evaluate.audits``)."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from harr.evaluate.audit import Audit
from harr.evaluate.rows import Row
from harr.evaluate.tables import label
from harr.params import Params
from harr.types import Episode


def by_turn(
    params: Params,
    rows: Mapping[str, Sequence[Sequence[Row]]],
    episodes: Mapping[str, Sequence[Episode]],
    *,
    metric: str = "ndcg_at_10",
) -> Audit:
    """Return the mean ``metric`` of every arm by turn, over all its runs, in percent."""
    turn_of = {episode.question.id: episode.question.level for played in episodes.values() for episode in played}
    turns = sorted({*turn_of.values()}, key=lambda turn: (len(turn), turn))
    counts = {turn: sum(one == turn for one in turn_of.values()) for turn in turns}
    table = [
        {"arm": arm} | {f"{turn} (n {counts[turn]})": _mean(runs, turn_of, turn, metric) for turn in turns}
        for arm, runs in rows.items()
    ]
    return Audit(title="By turn", says=f"Mean {label(metric)} in %, over all runs of an arm.", table=table)


def _mean(runs: Sequence[Sequence[Row]], turn_of: Mapping[str, str], turn: str, metric: str) -> str:
    values = [row[metric] for run in runs for row in run if turn_of[row["id"]] == turn and metric in row]
    return f"{100 * fmean(values):.1f}" if values else ""
