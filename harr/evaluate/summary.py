"""Summarise every arm's rows: means and paired gains with intervals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from harr.arms import ARMS, TRAINED, Arm
from harr.errors import CorpusError
from harr.evaluate.intervals import LEVEL, Array, Draws, resample
from harr.evaluate.rows import NOT_METRICS, Row

Runs = Sequence[Sequence[Row]]
"""The question rows of an arm's runs: one run per seed if it was trained."""
Summary = dict[str, dict[str, dict[str, Any]]]
Samples = dict[tuple[str, str, str, tuple[str, ...]], Array]
"""Values, runs x questions, by part and place of a summary, the name in it, and the compared arms."""

HEADLINES = ("answer_f1", "ndcg_at_10", "all_gold", "recall", "given_answer_f1", "given_all_gold", "given_recall")
"""The metric that leads a table or sentence: the first of these that was measured."""
DEEP = frozenset({"ndcg_at_10"})
"""Headlines that an arm has only if it retrieves that many passages."""
CONTRASTS = "contrasts"
TAIL = (1 - LEVEL) / 2
BEST_BY_KIND = "best_by_kind"
"""The row that bounds every rule that chooses an untrained arm by the kind of question."""
MOST_KINDS = 30
"""Maximum number of kinds: a rule on more of them would nearly know every question."""


def _metrics(rows: Iterable[Row]) -> list[str]:
    """Return the names of all metrics in the rows, those of the longest row first, so that hops stay in order."""
    ordered = sorted(rows, key=len, reverse=True)
    return list(dict.fromkeys(key for row in ordered for key in row if key not in NOT_METRICS))


def summarise(
    runs: Mapping[str, Runs], *, baseline: str = "frozen", arms: Mapping[str, Arm] = ARMS, resamples: int, seed: int
) -> Summary:
    """Return means and gains of every arm's runs, with 95 % intervals (:mod:`harr.evaluate.intervals`).

    ``arms`` says which arms are trained. A comparison with one that was trained once has no ``p``: its
    interval does not cover other seeds.

    Returns:
        ``arms``: ``{arm: {metric: {mean, low, high, n, seeds}}}``; ``seeds`` are the means of a trained
        arm's runs, one per seed. ``paired``: the gains ``{arm: {metric: {gain, low, high, p, n, seeds}}}`` over
        ``baseline``, each by itself; {} if it is not among the arms. ``contrasts``: gains of ``trained`` over every
        other arm, ``{"trained-arm": {metric: gain}}``; those of the headline metric have
        ``family: {low, high, p, of}``, which hold simultaneously. ``kinds``, if there are several:
        ``{kind: {arm: {mean, ...}}}`` in the headline metric, with the row ``best_by_kind`` among the arms. With
        several settings, the mixture has no contrasts or kinds, but ``settings``: all this for each of them.
    """
    rows = {row["id"]: row for by_seed in runs.values() for row in by_seed[0]}
    settings = list(dict.fromkeys(row.get("setting", "") for row in rows.values()))
    args = baseline, arms, resamples, seed
    if len(settings) < 2:
        return _compare(_with_best_by_kind(runs, arms), *args)
    summary = _compare(runs, *args, mixed=True)
    of_each = {
        name: {arm: [[row for row in run if row.get("setting", "") == name] for run in of] for arm, of in runs.items()}
        for name in settings
    }
    each = {name: {arm: of for arm, of in sub.items() if of[0]} for name, sub in of_each.items()}
    return summary | {"settings": {name: _compare(_with_best_by_kind(sub, arms), *args) for name, sub in each.items()}}


def is_untrained(arm: str, arms: Mapping[str, Arm]) -> bool:
    """Return whether an arm needs no training and is not an upper bound."""
    return arm in arms and not arms[arm].trained and not arms[arm].ceiling


def rival_of(summary: Summary, lead: str) -> str:
    """Return the best untrained arm, ours or another package's, that is not an upper bound; or ""."""
    means = {
        arm: row[lead]["mean"]
        for arm, row in summary["arms"].items()
        if lead in row and not (row[lead]["seeds"] or arm == BEST_BY_KIND or (arm in ARMS and ARMS[arm].ceiling))
    }
    return max(means, key=means.__getitem__, default="")


def _with_best_by_kind(runs: Mapping[str, Runs], arms: Mapping[str, Arm]) -> Mapping[str, Runs]:
    """Return the runs with that of ``best_by_kind``: for each kind of question the rows of the untrained retriever
    that does best on it, chosen with the same answers that it is scored by.

    Left out unless there are several kinds and several such arms.
    """
    rivals = {
        name: by_seed[0]
        for name, by_seed in runs.items()
        if is_untrained(name, arms) and arms[name].learner == "retriever"
    }
    kinds = list(dict.fromkeys(row.get("kind", "") for rows in rivals.values() for row in rows))
    measured = [{name: sum(name in row for row in rows) for name in _metrics(rows)} for rows in rivals.values()]
    lead = next(iter(_headlines(measured)), "")
    if len(rivals) < 2 or not 1 < len(kinds) <= MOST_KINDS or not lead or BEST_BY_KIND in runs:
        return runs
    best: list[Row] = []
    for kind in kinds:
        by_arm = {name: [row for row in rows if row.get("kind", "") == kind] for name, rows in rivals.items()}
        best += max(by_arm.values(), key=lambda rows: sum(row.get(lead, 0.0) for row in rows))
    return {**runs, BEST_BY_KIND: [best]}


def _compare(
    runs: Mapping[str, Runs], baseline: str, arms: Mapping[str, Arm], resamples: int, seed: int, *, mixed: bool = False
) -> Summary:
    """Return the means, gains, contrasts and kinds of :func:`summarise`; a mixture has no contrasts or kinds."""
    rows = {row["id"]: row for by_seed in runs.values() for row in by_seed[0]}
    values = {arm: _values(by_seed, list(rows)) for arm, by_seed in runs.items()}
    measured = [
        {name: int((~np.isnan(table).any(axis=0)).sum()) for name, table in by_metric.items()}
        for by_metric in values.values()
    ]
    lead = next(iter(_headlines(measured)), "")
    samples = _means_and_gains(values, baseline)
    if not mixed:
        samples |= _contrasts(values) | _kinds(values, lead, [row.get("kind", "") for row in rows.values()])
    samples = {key: table for key, table in samples.items() if not np.isnan(table).any(axis=0).all()}
    summary: Summary = {"arms": {arm: {} for arm in runs}, "paired": {}, "contrasts": {}}
    if not samples:
        return summary
    golds = [row.get("gold", ()) for row in rows.values()]
    draws = resample(list(samples.values()), golds, resamples=resamples, seed=seed)
    trained = {arm: len(by_seed) for arm, by_seed in runs.items() if arm in arms and arms[arm].trained}
    for number, ((part, place, name, compared), table) in enumerate(samples.items()):
        counts = [trained[arm] for arm in compared if arm in trained]
        centre = "gain" if len(compared) > 1 else "mean"
        summary.setdefault(part, {}).setdefault(place, {})[name] = _cell(centre, table, draws, number, counts)
    family = {
        place: number for number, (part, place, name, _) in enumerate(samples) if (part, name) == (CONTRASTS, lead)
    }
    together = draws.of(list(family.values())).family() if family else []
    for place, (low, high, p) in zip(family, together, strict=True):
        cell = summary[CONTRASTS][place][lead]
        cell["family"] = {"low": low, "high": high, **({"p": p} if "p" in cell else {}), "of": len(family)}
    return summary


def _means_and_gains(values: Mapping[str, Mapping[str, Array]], baseline: str) -> Samples:
    """Return the samples of every arm and of its gains over the baseline."""
    theirs = values.get(baseline, {})
    means = {("arms", arm, name, (arm,)): table for arm, tables in values.items() for name, table in tables.items()}
    return means | {
        ("paired", arm, name, (arm, baseline)): table - theirs[name]
        for arm, tables in values.items()
        for name, table in tables.items()
        if arm != baseline and name in theirs
    }


def _contrasts(values: Mapping[str, Mapping[str, Array]]) -> Samples:
    """Return the samples of the gains of ``trained`` over every other arm."""
    return {
        (CONTRASTS, f"{TRAINED}-{arm}", name, (TRAINED, arm)): table - tables[name]
        for arm, tables in values.items()
        for name, table in values.get(TRAINED, {}).items()
        if arm != TRAINED and name in tables
    }


def _kinds(values: Mapping[str, Mapping[str, Array]], lead: str, kinds: Sequence[str]) -> Samples:
    """Return the samples of every arm in the metric ``lead`` by kind of question, if there are several."""
    several = list(dict.fromkeys(kinds))
    if not 1 < len(several) <= MOST_KINDS:
        return {}
    return {
        ("kinds", kind, arm, (arm,)): np.where(np.asarray(kinds) == kind, tables[lead], np.nan)
        for kind in several
        for arm, tables in values.items()
        if lead in tables
    }


def _values(by_seed: Runs, ids: Sequence[str]) -> dict[str, Array]:
    """Return every metric's values, runs x questions; NaN if a question has none."""
    tables: dict[str, Array] = {}
    places = {name: place for place, name in enumerate(ids)}
    for name in _metrics(by_seed[0]):
        tables[name] = np.full((len(by_seed), len(ids)), np.nan)
        for values, rows in zip(tables[name], by_seed, strict=True):
            for row in rows:
                if name in row:
                    values[places[row["id"]]] = row[name]
    return tables


def _cell(centre: str, table: Array, draws: Draws, number: int, runs: Iterable[int], cut: int = 0) -> Row:
    """Return one sample's figures; ``runs``: how often each compared arm was trained; ``cut``: as in
    :meth:`harr.evaluate.intervals.Draws.interval`."""
    complete = table[:, ~np.isnan(table).any(axis=0)]
    draw = draws.of([number])
    (low, high), p = draw.interval(cut)[0], draw.p()[0]
    counted = {"n": complete.shape[1], "seeds": complete.mean(axis=1).tolist() if runs else []}
    p_cell = {"p": p} if centre == "gain" and 1 not in runs else {}
    return {centre: float(draws.means[number]), "low": low, "high": high, **p_cell, **counted}


def contrast(ours: Runs, theirs: Runs, *, resamples: int, seed: int, tail: float = TAIL) -> dict[str, Row]:
    """Return one arm's gains over another per metric, paired by question id: ``{metric: {gain, low, high, p, n,
    seeds}}``; the interval leaves out ``tail`` at either end.

    Only questions on which all runs of both have the metric count; a metric without such a question is absent.
    """
    rows = {row["id"]: row for row in (*ours[0], *theirs[0])}
    ours_by_name, theirs_by_name = _values(ours, list(rows)), _values(theirs, list(rows))
    pairs = {name: table - theirs_by_name[name] for name, table in ours_by_name.items() if name in theirs_by_name}
    samples = {name: table for name, table in pairs.items() if not np.isnan(table).any(axis=0).all()}
    if not samples:
        return {}
    golds = [row.get("gold", ()) for row in rows.values()]
    draws = resample(list(samples.values()), golds, resamples=resamples, seed=seed)
    runs = [len(ours), len(theirs)] if max(len(ours), len(theirs)) > 1 else []
    cut = max(1, int(tail * (resamples + 1)))
    numbered = enumerate(samples.items())
    return {name: _cell("gain", table, draws, number, runs, cut) for number, (name, table) in numbered}


def parts_of(summary: Summary) -> dict[str, Summary]:
    """Return the summary of every setting, or of all questions if there is one setting (named "").

    A mixture of settings is not among them: figures by arm are those of each part.
    """
    parts: dict[str, Summary] = summary.get("settings") or {"": summary}
    return parts


def flat_rows(summary: Summary) -> list[Row]:
    """Return a summary's arms as rows ``{setting, arm, metric, mean, low, high, n, seeds}`` for a plot or a CSV
    file, setting by setting."""
    return [
        {"setting": setting, "arm": arm, "metric": name, **values}
        for setting, part in parts_of(summary).items()
        for arm, metrics in part["arms"].items()
        for name, values in metrics.items()
    ]


def headlines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the metrics that a plot of these flat rows shows, the leading one first."""
    measured: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        measured.setdefault((row.get("setting", ""), row["arm"]), {})[row["metric"]] = row["n"]
    return _headlines(measured.values())


def list_silent_arms(summary: Summary) -> list[str]:
    """Return the arms that scored 0 in every headline metric, which is a fault, not a result: a gain over such an
    arm means nothing. A language model may score 0 before it is taught.

    >>> list_silent_arms({"arms": {"bm25": {"recall": {"mean": 0.0}}, "frozen": {"recall": {"mean": 0.2}}}})
    ['bm25']
    """
    scores = {arm: [row[name]["mean"] for name in HEADLINES if name in row] for arm, row in summary["arms"].items()}
    return [
        arm
        for arm, means in scores.items()
        if means and not any(means) and arm != TRAINED and not (arm in ARMS and ARMS[arm].learner == "language_model")
    ]


def headline(summary: Summary) -> str:
    """Return the leading metric: the first of HEADLINES that any arm has.

    Raises:
        CorpusError: nothing could be scored.
    """
    counts = ({name: cell["n"] for name, cell in metrics.items()} for metrics in summary["arms"].values())
    leads = _headlines(counts)
    if not leads:
        raise CorpusError("no question has a gold answer or a gold passage, so no arm can be scored; add them")
    return leads[0]


def _headlines(measured: Iterable[Mapping[str, int]]) -> list[str]:
    """Return the HEADLINES that were measured; ``measured`` has every arm's number of questions by metric.

    nDCG at 10 is left out if some questions with gold lack it because they retrieved fewer passages: those that have it
    do not represent all.

    >>> _headlines([{"ndcg_at_10": 1, "recall": 32}]), _headlines([{"ndcg_at_10": 32, "recall": 32}])
    (['recall'], ['ndcg_at_10', 'recall'])
    """
    counts = list(measured)
    every = {name for sizes in counts for name in sizes}
    partly = {name for name in DEEP for sizes in counts if sizes.get(name, 0) < sizes.get("recall", 0)}
    return [name for name in HEADLINES if name in every - partly]


def baseline_of(summary: Summary) -> str:
    """Return the arm that the others are compared with, or "".

    >>> baseline_of({"arms": {"frozen": {}, "trained": {}}, "paired": {"trained": {}}})
    'frozen'
    """
    return next((arm for arm in summary["arms"] if arm not in summary["paired"]), "") if summary["paired"] else ""
