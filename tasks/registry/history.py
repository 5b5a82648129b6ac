"""The champions of a registered model in order, kept next to the aliases so that any can be restored.

Anybody can move an alias with MLflow's page or client, and it vanishes with its version. So a tag of the registered
model lists the champions: if the alias differs from it, it was moved by hand, or the version was deleted.
"""

import json
from typing import Any

from harr.services.model_registry import CHAMPION
from tasks.tracking.errors import look_up

PREVIOUS, PROMOTED = "previous_champion", "promoted"
TAG, MOVING = "harr.champions", "harr.moving"
MOST = 200
"""Most champions in the list; MLflow keeps 5,000 characters of a tag."""


def champions(client: Any, name: str) -> list[str]:
    """Return the numbers of all champions, the present one last; without a list, the promoted one and the one before.

    A move that a kill cut off is finished first. If all champions were deleted, none is returned, and the next one is
    the first again.
    """
    model = look_up(client.get_registered_model, name)
    if model is None:
        return []
    past = read_list(model.tags.get(TAG, ""))
    version = look_up(client.get_model_version_by_alias, name, CHAMPION)
    now = str(version.version) if version else ""
    if MOVING in model.tags:
        if now == model.tags[MOVING] and past[-1:] != [now]:
            past = _note(client, name, [*past, now])
        client.delete_registered_model_tag(name, MOVING)
    if not past and version and PROMOTED in version.tags:
        before = look_up(client.get_model_version_by_alias, name, PREVIOUS)
        return [*([str(before.version)] if before else []), now]
    exists = version or any(look_up(client.get_model_version, name, number) for number in set(past))
    return past if exists else []


def describe_manual_move(past: list[str], champion: Any | None) -> str:
    """Return how the alias differs from what promotions and rollbacks left, and what to do; "" if it does not.

    >>> describe_manual_move([], None), describe_manual_move(["1", "3"], None)[:52]
    ('', 'version 3 was champion and is none any more (deleted')
    """
    now = str(champion.version) if champion else ""
    if now == (past[-1] if past else ""):
        return ""
    back = "`harr rollback --to N` names the champion"
    if not now:
        return f"version {past[-1]} was champion and is none any more (deleted, or its alias taken off); {back}"
    last = f"version {past[-1]} was promoted last" if past else "no version was ever promoted"
    return f"the alias was moved by hand to version {now}, and {last}; {back}"


def move(client: Any, name: str, version: str, past: list[str]) -> None:
    """Make a version the champion and list it; the one before becomes ``previous_champion``.

    A kill in between leaves the tag MOVING, and :func:`champions` finishes the move.
    """
    client.set_registered_model_tag(name, MOVING, version)
    before = look_up(client.get_model_version_by_alias, name, CHAMPION)
    if before and str(before.version) != version:
        client.set_registered_model_alias(name, PREVIOUS, before.version)
    client.set_registered_model_alias(name, CHAMPION, version)
    _note(client, name, [*past, version])
    client.delete_registered_model_tag(name, MOVING)


def _note(client: Any, name: str, numbers: list[str]) -> list[str]:
    client.set_registered_model_tag(name, TAG, json.dumps(numbers[-MOST:]))
    return numbers


def read_list(text: str) -> list[str]:
    """Return the list of texts in a tag; empty if somebody wrote something else into it.

    >>> read_list('["1", "3"]'), read_list(""), read_list("{}")
    (['1', '3'], [], [])
    """
    try:
        value = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []
