"""Great Expectations: the suites, and the process that runs them. The only module that imports it.

``main`` answers one line of JSON per line of JSON on stdin (see tasks/expectations/process.py). Results and Data
Docs stay under gx/, which is not in git.
"""

import gc
import json
import logging
import sys
from copy import copy
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations.checkpoint.actions import UpdateDataDocsAction
from great_expectations.data_context.types.base import ProgressBarsConfig

gxe: Any = gx.expectations
ROW_KEYS = {
    "corpus": ["row", "id"],
    "questions": ["split", "id"],
    "vectors": ["row"],
    "index": ["collection"],
    "filtered": ["id"],
    "all_kept": ["id"],
    "preferences": ["id"],
    "evaluation": ["arm", "id"],
}
"""Columns that identify an offending row."""

SUITES: dict[str, list[Any]] = {
    "corpus": [
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
        gxe.ExpectColumnValuesToNotBeNull(column="id"),
        gxe.ExpectColumnValuesToBeUnique(column="id"),
        gxe.ExpectColumnValueLengthsToBeBetween(column="text", min_value=1, max_value=1_000_000),
        gxe.ExpectColumnValuesToBeBetween(column="words", min_value=1),
    ],
    "questions": [
        gxe.ExpectColumnDistinctValuesToContainSet(column="split", value_set=["train", "test"]),
        gxe.ExpectCompoundColumnsToBeUnique(column_list=["split", "id"]),
        gxe.ExpectColumnValueLengthsToBeBetween(column="question", min_value=1, max_value=10_000),
        gxe.ExpectColumnValuesToBeBetween(column="targets", min_value=1),
        gxe.ExpectColumnValuesToBeBetween(column="missing_gold", max_value=0),
        gxe.ExpectColumnValuesToBeInSet(column="in_other_split", value_set=[False]),
        gxe.ExpectColumnValuesToBeBetween(column="gold_elsewhere", max_value=0),
    ],
    "vectors": [
        gxe.ExpectColumnValuesToNotBeNull(column="norm"),
        gxe.ExpectColumnValuesToBeBetween(column="norm", min_value=0.999, max_value=1.001),
        gxe.ExpectColumnStdevToBeBetween(column="first", min_value=1e-6),
    ],
    "index": [
        gxe.ExpectColumnValuesToBeBetween(column="indexed", min_value=1),
        gxe.ExpectColumnPairValuesToBeEqual(column_A="indexed", column_B="searchable"),
        gxe.ExpectColumnPairValuesToBeEqual(column_A="vectors", column_B="passages"),
    ],
    "filtered": [
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
        gxe.ExpectColumnValuesToBeUnique(column="id"),
        gxe.ExpectColumnValuesToBeBetween(column="reward_std", min_value=0, strict_min=True),
        gxe.ExpectColumnValuesToBeInSet(column="reason", value_set=["rollouts disagree"]),
    ],
    "all_kept": [
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
        gxe.ExpectColumnValuesToBeUnique(column="id"),
        gxe.ExpectColumnValuesToBeInSet(column="kept", value_set=[True]),
    ],
    "preferences": [
        gxe.ExpectTableRowCountToBeBetween(min_value=1),
        gxe.ExpectColumnDistinctValuesToContainSet(column="split", value_set=["train"]),
        gxe.ExpectColumnDistinctValuesToBeInSet(column="split", value_set=["train", "held_out"]),
        gxe.ExpectColumnValuesToBeInSet(column="in_other_split", value_set=[False]),
        gxe.ExpectColumnValuesToBeBetween(column="margin", min_value=0, strict_min=True),
        gxe.ExpectColumnValueLengthsToBeBetween(column="chosen", min_value=1, max_value=10_000),
        gxe.ExpectColumnValueLengthsToBeBetween(column="rejected", min_value=1, max_value=10_000),
        gxe.ExpectCompoundColumnsToBeUnique(column_list=["id", "chosen", "rejected"]),
        gxe.ExpectColumnValuesToBeInSet(column="target_is_best", value_set=[True]),
        gxe.ExpectColumnValuesToBeBetween(column="hop", min_value=1),
    ],
    "evaluation": [
        gxe.ExpectCompoundColumnsToBeUnique(column_list=["arm", "id"]),
        gxe.ExpectColumnValuesToBeBetween(column="recall", min_value=0, max_value=1),
        gxe.ExpectColumnValuesToBeBetween(column="answer_f1", min_value=0, max_value=1),
        gxe.ExpectColumnValuesToBeBetween(column="questions_missing", max_value=0),
    ],
}


def check(suite: str, frame: pd.DataFrame) -> Any:
    """Run a suite as a checkpoint of the file context and return its result."""
    context = gx.get_context(mode="file", project_root_dir=".")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_or_update_pandas(name="harr")
    batch = source.add_dataframe_asset(name=suite).add_batch_definition_whole_dataframe(name="whole")
    rules = gx.ExpectationSuite(
        name=suite,
        expectations=[copy(rule) for rule in SUITES[suite]],  # a rule cannot move to another suite object
        notes="Tables of very many rows are checked on an even sample (SAMPLE in tasks/common.py).",
    )
    definition = gx.ValidationDefinition(name=suite, data=batch, suite=context.suites.add_or_update(rules))
    checkpoint = gx.Checkpoint(
        name=suite,
        validation_definitions=[context.validation_definitions.add_or_update(definition)],
        result_format={
            "result_format": "SUMMARY",
            "partial_unexpected_count": 3,
            "unexpected_index_column_names": ROW_KEYS[suite],
        },
    )
    return context.checkpoints.add_or_update(checkpoint).run(batch_parameters={"dataframe": frame})


def answer(outcome: Any) -> dict[str, Any]:
    """Return ``{"rules": number, "failed": [one text per failed rule]}``."""
    results = next(iter(outcome.run_results.values())).results
    return {"rules": len(results), "failed": [_explain(rule) for rule in results if not rule.success]}


def _write_pages(outcome: Any) -> None:
    UpdateDataDocsAction(name="docs").run(outcome)


def _explain(rule: Any) -> str:
    """Return a failed rule as text: its name, column and limits, and the first offending rows."""
    config, result = rule.expectation_config, rule.result
    names = config.kwargs.get("column") or ", ".join(config.kwargs.get("column_list", ["the table"]))
    keys = ("column", "column_list", "batch_id")
    limits = {key: value for key, value in config.kwargs.items() if key not in keys and value is not None}
    text = f"{config.type} on {names}" + (f" ({_words(limits)})" if limits else "")
    if rows := result.get("partial_unexpected_index_list"):
        return f"{text}: {result['unexpected_count']} rows, first {'; '.join(map(_words, rows))}"
    if missing := result.get("partial_missing_list"):
        return f"{text}: missing {missing}"
    return f"{text}: found {result.get('observed_value')}"


def _words(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def main() -> None:
    """Answer requests until stdin ends; only answers go to stdout.

    Pages of a suite that passed are written after the answer, so the stage need not wait; those of a failure before.
    """
    gc.enable()
    answers, sys.stdout = sys.stdout, sys.stderr
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    for line in sys.stdin:
        request = json.loads(line)
        outcome = check(request["suite"], pd.read_feather(request["table"]))
        if not outcome.success:
            _write_pages(outcome)
        print(json.dumps(answer(outcome), default=str), file=answers, flush=True)
        if outcome.success:
            _write_pages(outcome)
    gc.freeze()  # for a quick exit
