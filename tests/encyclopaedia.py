"""Section `download` of the fictional encyclopaedia, and its scripted player, which a plug-in brings."""

from typing import Any

PLAYER = {"kind": "function", "function": "harr_encyclopaedia.scripted:Scripted"}


def encyclopaedia(**settings: Any) -> dict[str, Any]:
    """Section `download` with these settings."""
    return {"dataset": "function", "function": "harr_encyclopaedia.dataset:DATASET", "settings": settings}
