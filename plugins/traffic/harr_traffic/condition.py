"""A condition of the gate (``tracking.conditions``): what logged traffic says about a candidate."""

from pathlib import Path
from typing import Any

from harr.errors import HarrError
from harr.report.promotion import Condition
from harr.services.model_registry import CACHE, SCHEME, fetch, resolve
from harr_traffic.judge import replayed
from tasks.registry.gate import Gains

NEEDED = "an estimated gain (dr) of at least 0 over what was served"


def gain(client: Any, candidate: Any, gains: Gains, *, log: str) -> Condition:
    """Require that, by the log in a folder, a candidate would have earned no less than what was served.

    A log that says too little about it, or cannot be read, does not pass it.
    """
    try:
        folder = fetch(client, resolve(client, f"{SCHEME}{candidate.name}/{candidate.version}"), Path(CACHE))
        found = replayed(Path(log), str(folder), Path())
    except HarrError as error:
        return Condition("traffic", str(error), NEEDED, False)
    one = found.found["dr"]
    found_gain = f"{one.gain:+.3f} [{one.gain_low:+.3f}, {one.gain_high:+.3f}] in {found.rows:,} searches"
    return Condition("traffic", found_gain, NEEDED, one.gain >= 0)
