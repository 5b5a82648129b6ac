"""Cards for the hub: the README of a question set, of a retriever and of a language model."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from huggingface_hub import EvalResult

from harr import __version__
from harr.arms import TRAINED
from harr.evaluate.summary import Summary, baseline_of, headline, parts_of
from harr.evaluate.tables import comparisons, label, p_value, runs, spread, with_interval
from harr.merge.card import LANGUAGE_MODEL_USAGE, model_card, plain_facts, purpose, usage

EVALUATION = """## Evaluation

Figures are in percent with bootstrap 95 % intervals, every arm on the same questions. `trained` is this model; where it
has several seeds, this is the first of them. The intervals are over seeds and questions. An arm that was trained once
is "1 run": its intervals are over questions alone, and its comparisons have no p value.

{parts}
"""

DATASET = """---
{license}tags: [harr, question-answering, retrieval]
configs:
- config_name: questions
  data_files: questions.jsonl
- config_name: statistics
  data_files: statistics.jsonl
---
# {name}

Training questions for a RAG retriever, {choice}.

- `questions.jsonl`: the {kept:,} kept questions, {order}: `id`, `question`, `answers`, `supporting` (ids of
  the gold passages in hop order), `context_ids` (ids of the passages given with the question), `type`.
- `statistics.jsonl`: all {tried:,} questions that were tried: {columns}.

| reason | questions |
|---|---|
{reasons}
"""

TRAINING = """\
It writes searches, whose results somebody has to put into its text: docs/usage_language_model.md of harr does so in 20
lines.

## Training

| what | value |
|---|---|
{training}

{evaluation}

All metrics of `trained`; shares in percent:

{metrics}

"""


def dataset_card(name: str, statistics: Sequence[Mapping[str, Any]], kept: int, license: str) -> str:
    """Return the card of a filtered question set.

    Args:
        name: owner and name of the repository.
        statistics: the rows of statistics.jsonl.
        kept: number of questions in questions.jsonl.
        license: the hub's short name of a licence; if empty, the card names none.
    """
    reasons = Counter(row["reason"] for row in statistics)
    played = set(reasons) != {"all are kept"}
    chosen = "kept by harr {} because sampled rollouts of the untrained retriever\ndisagree on them"
    return DATASET.format(
        name=name,
        license=_license(license),
        choice=(chosen if played else "set by harr {} as they are; none was played").format(__version__),
        order="from easy to hard" if played else "in random order",
        columns="`id`, `reward_mean`, `reward_std`, `kept`, `reason`" if played else "`id`, `kept`, `reason`",
        kept=kept,
        tried=len(statistics),
        reasons="\n".join(_row(reason, f"{count:,}") for reason, count in reasons.most_common()),
    )


def retriever_card(name: str, facts: Mapping[str, Any], summary: Summary, contrasts: Summary, license: str) -> str:
    """Return the card of a merged retriever.

    Args:
        name: owner and name of the repository.
        facts: harr.json of the model folder; ``base_model`` is the base encoder.
        summary: metrics/evaluate.json.
        contrasts: metrics/contrasts.json, ``{"trained-<arm>": {metric: {gain, low, high, p, n, seeds}}}``.
        license: the hub's short name of a licence; if empty, the card names none.
    """
    facts = plain_facts(facts)
    return model_card(
        "retriever",
        facts,
        title=name,
        what=f"A retriever trained by harr {__version__}. {purpose(facts)}",
        use=usage(facts, name),
        body=f"{_evaluation(summary, contrasts)}\n\n",
        **_metadata(name, facts, summary, license),
    )


def language_model_card(
    name: str, facts: Mapping[str, Any], training: Mapping[str, Any], summary: Summary, contrasts: Summary, license: str
) -> str:
    """Return the card of a language model trained by reward; see :func:`retriever_card` for the arguments.

    ``training`` describes its training, in order: method, pipeline, rewards and the like.
    """
    facts = plain_facts(facts)
    body = TRAINING.format(
        training="\n".join(_row(key, value) for key, value in training.items()),
        evaluation=_evaluation(summary, contrasts),
        metrics=_by_setting(summary, _metrics),
    )
    return model_card(
        "language_model",
        facts,
        title=name,
        what=f"A language model trained by harr {__version__} to search and to answer. Its base is {facts['base_model']}.",
        use=LANGUAGE_MODEL_USAGE.format(name=name),
        body=body,
        **_metadata(name, {**training, **facts}, summary, license),
    )


def _metadata(name: str, facts: Mapping[str, Any], summary: Summary, license: str) -> dict[str, Any]:
    """Return what the hub shows and searches by: base, licence, and ``trained`` in the leading metric per setting."""
    dataset = facts.get("dataset") or facts.get("questions", "")
    results = [
        EvalResult(
            task_type="text-retrieval",
            dataset_type=str(dataset or "custom"),
            dataset_name=" ".join(filter(None, (str(dataset), setting))) or "custom",
            dataset_config=setting or None,  # results of one data set and configuration are merged
            metric_type=(lead := headline(part)),
            metric_name=label(lead),
            metric_value=part["arms"][TRAINED][lead]["mean"],
        )
        for setting, part in parts_of(summary).items()
        if headline(part) in part["arms"].get(TRAINED, {})
    ]
    base = facts["base_model"]
    return {
        "base_model": base if "/" in base else None,
        "license": license or None,
        "model_name": name,
        "eval_results": results or None,
    }


def _evaluation(summary: Summary, contrasts: Summary) -> str:
    """Return the arms in the leading metric and the contrasts of the trained one, setting by setting."""
    whole = summary if "settings" in summary else {**summary, "contrasts": contrasts}
    return EVALUATION.format(parts=_by_setting(whole, _compared)).rstrip()


def _by_setting(summary: Summary, text: Callable[[Summary], str]) -> str:
    """Return the text of every setting, each under its name if there are several."""
    parts = parts_of(summary)
    heads = {name: f"### {name or 'no setting'}\n\n" if len(parts) > 1 else "" for name in parts}
    return "\n\n".join(f"{heads[name]}{text(part)}" for name, part in parts.items())


def _compared(summary: Summary) -> str:
    """Return the arms of one setting in its leading metric, and the gains of ``trained``."""
    lead = headline(summary)
    compared, basis = comparisons(summary, lead) if summary.get("contrasts") else ({}, "")
    others = [f"- `trained` over `{rival}`: {_gain(gain)}" for rival, gain in compared.items()]
    gains = ["", f"Paired on the same questions, in points. {basis}", "", *others] if others else []
    return "\n".join([*_arms(summary, lead), *gains])


def _metrics(summary: Summary) -> str:
    """Return all metrics of ``trained`` in one setting, as a Markdown table."""
    rows = [
        _row(label(metric), with_interval(metric, found, "mean"), found["n"])
        for metric, found in summary["arms"].get(TRAINED, {}).items()
    ]
    return "\n".join([_row("metric", "mean [95 %]", "n"), "|---|---|---|", *rows])


def _arms(summary: Summary, lead: str) -> list[str]:
    """Return the arms as a Markdown table: number of runs, n, interval, gain over the baseline by itself."""
    baseline = baseline_of(summary) or "the baseline"
    head = ["arm", "runs, lowest to highest", "n", f"{label(lead)} [95 %]", f"gain over {baseline} [95 %]", "p"]
    lines = [_row(*head), "|---" * len(head) + "|"]
    for arm, metrics in summary["arms"].items():
        if lead not in metrics:
            continue
        gain = summary["paired"].get(arm, {}).get(lead)
        tail = [spread(gain, "gain", "+.1f"), p_value(gain)] if gain else ["", ""]
        lines.append(_row(arm, runs(metrics[lead]["seeds"]), metrics[lead]["n"], spread(metrics[lead], "mean"), *tail))
    return lines


def _gain(gain: Mapping[str, Any]) -> str:
    p = f"p {p_value(gain)}" if "p" in gain else "1 run"
    return f"{spread(gain, 'gain', '+.1f')}, {p}, n {gain['n']}"


def _license(name: str) -> str:
    return f"license: {name}\n" if name else ""


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
