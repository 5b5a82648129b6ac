"""Audits of the trained arm by functions of other packages: ``evaluate.audits``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harr.errors import ParamsError
from harr.evaluate.audit import Audit
from harr.params import Params
from harr.params.functions import function_of
from harr.types import Episode, Log
from tasks.play import Rows

SHAPE = "takes the parameters, rows and episodes by arm and the settings, and returns an Audit (harr/evaluate/audit.py)"


def audit_functions(params: Params) -> dict[str, Callable[..., Any]]:
    """Return the functions by name.

    Raises:
        ParamsError: one cannot be imported, or does not take the settings.
    """
    audits = params.evaluate.audits.items()
    return {
        name: function_of(name, key="evaluate.audits", shape=SHAPE, takes=3, settings=settings)
        for name, settings in audits
    }


def play_audits(
    params: Params, rows: Mapping[str, list[Rows]], episodes: Mapping[str, Sequence[Episode]], log: Log
) -> dict[str, dict[str, Any]]:
    """Return by name every function's audit of all runs' rows and of the episodes of each arm's first run.

    Raises:
        ParamsError: one returns something else.
    """
    results = {}
    for name, function in audit_functions(params).items():
        audit = function(params, rows, episodes, **params.evaluate.audits[name])
        if not isinstance(audit, Audit):
            raise ParamsError(f"evaluate.audits: {name} returned {type(audit).__name__}; give one that {SHAPE}")
        for line in audit.alarms.values():
            print(f"alarm: {line}")
        log(0, dict(audit.figures))
        results[name] = asdict(audit)
    return results
