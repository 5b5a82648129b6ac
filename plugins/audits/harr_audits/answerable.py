"""Which questions can be answered at all, and how the arms rank on those: an audit of the questions.

Three groups count: questions of which a gold passage states an answer, those where the language model is right with the
gold passages (arm ``gold``), and those where it is wrong without any (arm ``nothing``). wiki18 lacks 295,000 documents
that benchmarks on it need (arXiv 2605.27881); a question without its evidence tells no arms apart, or rewards guessing.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from harr.characters import statable_answers, states_answer
from harr.corpus.passages import Passages
from harr.evaluate.audit import Audit
from harr.evaluate.summary import headlines
from harr.params import Params
from harr.types import Episode, Question
from tasks.paths import CORPUS
from tasks.play import Rows

RIGHT = 0.5
"""Answer F1 from which an answer counts as right."""
SAYS = """\
Does the ranking of the arms rest on questions that cannot be answered, or that need no passage? Mean {metric}, in percent,
of all questions; of those whose answer a gold passage states (yes and no count as stated); of those that the language
model answers with the gold passages; and of those that it does not answer without any."""


def audit_answerable(
    params: Params, rows: Mapping[str, list[Rows]], episodes: Mapping[str, Sequence[Episode]]
) -> Audit:
    """Return the figures of all arms by which questions can be answered; none counts against the trained arm.

    Its ``facts`` are ``questions``, the number in each group. A group without a question, or whose arm was not played,
    is left out.
    """
    questions = [episode.question for episode in next(iter(episodes.values()))]
    groups = {"all": {question.id for question in questions}, "stated": find_stated(questions)}
    for name, arm, wanted in (("read", "gold", True), ("not known", "nothing", False)):
        if arm in rows and any("answer_f1" in row for row in rows[arm][0]):
            groups[name] = {row["id"] for row in rows[arm][0] if (row.get("answer_f1", 0.0) >= RIGHT) is wanted}
    kept = {name: runs for name, runs in rows.items() if name not in ("gold", "nothing")}
    flat = [
        {"arm": name, "metric": key, "n": sum(key in row for row in runs[0])}
        for name, runs in kept.items()
        for key in {key for row in runs[0] for key in row}
    ]
    metric = headlines(flat)[0]
    groups = {group: ids for group, ids in groups.items() if ids}
    kept = {name: runs for name, runs in kept.items() if any(metric in row for row in runs[0])}
    means = {name: {group: _mean(runs, metric, ids) for group, ids in groups.items()} for name, runs in kept.items()}
    swaps = {group: _swaps({name: one[group] for name, one in means.items()}, means) for group in groups}
    return Audit(
        facts={"questions": {group: len(ids) for group, ids in groups.items()}},
        title="Questions that can be answered",
        says=SAYS.format(metric=metric),
        table=[
            {"arm": name} | {f"{group}, n {len(groups[group])}": f"{100 * mean:.1f}" for group, mean in one.items()}
            for name, one in means.items()
        ],
        note="; ".join(f"{group}: {pairs}" for group, pairs in swaps.items() if pairs)
        or "The arms rank alike in every group.",
    )


def find_stated(questions: Sequence[Question]) -> set[str]:
    """Return the ids of the questions whose answer is stated by a gold passage, or is yes or no."""
    passages = Passages.open(CORPUS)
    rows = passages.rows_of({key for question in questions for key in question.gold_ids})
    text_of = dict(zip(rows, (passage.content for passage in passages.take(list(rows.values()))), strict=True))
    return {
        question.id
        for question in questions
        if (question.answers and not statable_answers(question.answers))
        or any(states_answer(text_of.get(key, ""), question.answers) for key in question.gold_ids)
    }


def _mean(runs: Sequence[Rows], metric: str, ids: Collection[str]) -> float:
    """Return the mean of a metric over these questions and the runs of an arm."""
    values = [row[metric] for run in runs for row in run if row["id"] in ids and metric in row]
    return sum(values) / len(values) if values else 0.0


def _swaps(group: Mapping[str, float], means: Mapping[str, Mapping[str, float]]) -> str:
    """Return a text on the pairs of arms whose order differs from that on all questions."""
    pairs = [
        (first, second) if group[first] > group[second] else (second, first)
        for first, second in combinations(group, 2)
        if (group[first] - group[second]) * (means[first]["all"] - means[second]["all"]) < 0
    ]
    return ", ".join(f"{better} is ahead of {other}" for better, other in pairs)
