"""Findings of another package's function against the trained arm (``evaluate.audits``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Audit:
    """What one function found in all arms' episodes: JSON for metrics/evaluate.json and audit.json."""

    alarms: Mapping[str, str] = field(default_factory=dict)
    """One line for each finding against ``trained``, by name: printed, and named in MLflow."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures for MLflow."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts registered with the model, for functions of ``tracking.conditions``."""
    title: str = ""
    """Heading in the report, which shows the audit if it has a table."""
    says: str = ""
    """What the table shows."""
    table: Sequence[Mapping[str, str]] = ()
    """Rows, each by column; the first column names the row, in red if it is one of ``alarms``."""
    note: str = ""
    """Text below the table."""
