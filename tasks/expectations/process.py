"""Data checks of the stages: tables go to Great Expectations, which runs in its own process.

That process starts early, so its slow import overlaps the stage's work.
"""

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from harr.errors import ExpectationFailed
from tasks.paths import CHECKS

# Its imports create a million long-lived objects, and warn about future names.
COMMAND = [
    sys.executable,
    "-W",
    "ignore",
    "-c",
    "import gc; gc.disable(); from tasks.expectations.suites import main; main()",
]


def expect(suite: str, frame: pd.DataFrame) -> dict[str, float]:
    """Check a table against a suite of tasks/expectations/suites.py and update the Data Docs.

    Returns:
        Number of rules that passed, under the name ``expected_<suite>``: a figure of the stage.

    Raises:
        ExpectationFailed: names each failed rule with its first offending rows.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.feather"
        frame.reset_index(drop=True).to_feather(table)
        outcome = _ask({"suite": suite, "table": str(table)})
    if outcome["failed"]:
        rules, page = "; ".join(outcome["failed"][:5]), data_docs()[suite]
        raise ExpectationFailed(
            f"{suite}: {len(outcome['failed'])} of {outcome['rules']} expectations failed: {rules}; see {page}"
        )
    return {f"expected_{suite}": float(outcome["rules"])}


@cache
def checker() -> "subprocess.Popen[str]":
    """Return the process that runs Great Expectations; it ends by itself when this one does."""
    return subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # this process handles Ctrl-C
    )


def _ask(request: dict[str, str]) -> dict[str, Any]:
    process = checker()
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"the process of Great Expectations ended with exit code {process.wait()}")
    outcome: dict[str, Any] = json.loads(answer)
    return outcome


def data_docs() -> dict[str, str]:
    """Return the latest page of every suite that ran."""
    return {
        folder.name: str(max(folder.rglob("*.html")))
        for folder in sorted(CHECKS.glob("*"))
        if any(folder.rglob("*.html"))
    }


def words_of(suite: str) -> str:
    """Return what a suite checks, in words.

    >>> words_of("all_kept"), words_of("corpus")
    ('kept questions', 'corpus')
    """
    return "kept questions" if suite in ("all_kept", "filtered") else suite
