"""Section `download` of the fictional encyclopaedia and its scripted player, both from a plug-in."""

from typing import Any

PLAYER = {"kind": "function", "function": "harr_encyclopaedia.scripted:Scripted"}


def encyclopaedia(**settings: Any) -> dict[str, Any]:
    """Return section `download` with these settings."""
    return {"dataset": "function", "function": "harr_encyclopaedia.dataset:DATASET", "settings": settings}
