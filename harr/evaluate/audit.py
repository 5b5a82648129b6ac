"""What a function of another package holds against the trained arm (``evaluate.audits``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Audit:
    """What one function found in the play of all arms: JSON, which metrics/evaluate.json and audit.json hold."""

    alarms: Mapping[str, str] = field(default_factory=dict)
    """A line for each finding against ``trained``, by its name: printed, and named in MLflow."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures for MLflow."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What is registered with the model, for a function of ``tracking.conditions`` to read."""
    title: str = ""
    """Heading in the report, where the audit stands if it has a table."""
    says: str = ""
    """What the table shows."""
    table: Sequence[Mapping[str, str]] = ()
    """Rows by column; the first column names the row, in red if it is one of ``alarms``."""
    note: str = ""
    """What stands below the table."""
