"""The MLflow registry: the alias ``champion``, which moves only when every condition of the gate holds (gate.py)."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from harr.errors import HarrError, PromotionRefused
from harr.params import Params
from harr.report.promotion import table
from harr.services.model_registry import CHAMPION
from tasks.registry.attempts import note
from tasks.registry.gate import Row, arm_of, is_trained, judge
from tasks.registry.history import PREVIOUS, PROMOTED, champions, move
from tasks.registry.proposal import propose_arm
from tasks.registry.register import CANDIDATE, ROLLED_BACK
from tasks.registry.replay import replay_of
from tasks.runtime.output import width
from tasks.tracking.client import open_client
from tasks.tracking.errors import done_once, look_up, service, uploading
from tasks.tracking.execution import is_alive, machine, process_name, recipe_here, this_process
from tasks.tracking.fingerprints import user

PROMOTED_BY = "promoted_by"
"""Tag that says who promoted a champion."""
LEASE_SECONDS, WAIT_SECONDS = 600.0, 60.0
FIRST = "`harr promote` makes one"
HOLDER = re.compile(r"\(((\w+)-\d+-\d+)\)$")
"""The process that a mark names (``process_name`` of execution.py), and its machine."""


def outcome_of(
    what: Literal["promote", "rollback"], params: Params, *, arm: str = "", again: bool = False, to: str = ""
) -> tuple[bool, str]:
    """Return whether the alias moved, and why, in a line: a refusal is an answer, not a failure."""
    try:
        return True, promote(params, arm=arm, again=again) if what == "promote" else rollback(params, to=to)
    except PromotionRefused as refusal:
        return False, str(refusal)


def promote(params: Params, *, arm: str = "", again: bool = False) -> str:
    """Move ``champion`` to an arm of the table, or the candidate, if the gate allows it; return what was done.

    Without an ``arm`` it is the best one (:func:`tasks.registry.proposal.propose_arm`). The conditions are printed, and
    kept as ``promotion.html`` with the candidate's run, refused or not. A champion of another game is first played on
    the candidate's; with ``again``, so is one of the same game.

    Raises:
        PromotionRefused: no candidate, or a condition of the gate does not hold.
    """
    proposed = propose_arm(params, arm)
    with service():
        client, name = open_client(params), params.tracking.registered_model
        with lock_promotion(client, name):
            if proposed:
                candidate = client.get_model_version(name, proposed)
            else:
                candidate = look_up(client.get_model_version_by_alias, name, CANDIDATE)
            champion = look_up(client.get_model_version_by_alias, name, CHAMPION)
            if candidate is None:
                option = "" if recipe_here() == "params.yaml" else f" --recipe {recipe_here()}"
                run = f"harr run{option}" if option else "dvc repro"
                mend = f"run `{run}`, or `harr record --register{option}` for the model in models/"
                raise PromotionRefused(f"registered model {name} has no candidate; {mend}")
            past = champions(client, name)
            replay = _replay(client, params, candidate, champion, again=again)
            verdict = judge(client, candidate, champion, past, replay, params.tracking.conditions)
            # Not attempts: the champion itself, evaluated again by a nightly run, and what has nothing to gain over.
            same = champion and champion.tags.get("model") == candidate.tags.get("model")
            if verdict.gains and not same and (champion or is_trained(candidate)):
                note(client, candidate)
            with uploading("promotion.html"):
                client.log_text(candidate.run_id, verdict.page, "promotion.html")
            print(f"{table(verdict.conditions, min(width(), 80))}\nkept as promotion.html with run {candidate.run_id}")
            if verdict.refusal:
                raise PromotionRefused(f"{verdict.refusal}; the alias stays where it is")
            if champions(client, name) != past:  # playing the champion again may take longer than LEASE_SECONDS
                raise PromotionRefused(f"another champion of {name} was made meanwhile; run `harr promote` again")
            outcome = (
                f"version {verdict.version} of {name} ({arm_of(candidate)}) against {verdict.against}: "
                f"{verdict.conditions[2].found}"
            )
            client.set_model_version_tag(name, candidate.version, PROMOTED, outcome)
            client.set_model_version_tag(name, candidate.version, PROMOTED_BY, user())
            move(client, name, str(candidate.version), past)
    return f"promoted: {outcome}"


def _replay(
    client: Any, params: Params, candidate: Any, champion: Any | None, *, again: bool
) -> Callable[[], list[Row]] | None:
    """Return how to play the champion again; None if it need not be, or cannot be and was not asked for."""
    if champion is None or champion.version == candidate.version:
        return None
    if not again and champion.tags.get("evaluation") == candidate.tags.get("evaluation"):
        return None
    try:
        return replay_of(client, params, candidate, champion)
    except HarrError as error:
        if again:
            raise
        print(f"the champion is not played on the candidate's game: {error}")
        return None


def rollback(params: Params, *, to: str = "") -> str:
    """Move ``champion`` back to the version before, or to a former champion ``to``; return what was done.

    The version that leaves also loses ``candidate``, so that the next run does not promote it again;
    `harr record --register` gives it back.

    Raises:
        PromotionRefused: there is no previous champion, or ``to`` was never champion or is gone.
    """
    with service():
        client, name = open_client(params), params.tracking.registered_model
        with lock_promotion(client, name):
            past = champions(client, name)
            champion = look_up(client.get_model_version_by_alias, name, CHAMPION)
            before = look_up(client.get_model_version_by_alias, name, PREVIOUS)
            previous = _find_former(client, name, past, to) if to else before
            same = champion and previous and champion.version == previous.version
            if previous is None or (same and not to):
                remedy = f"`harr rollback --to` takes {_name_former(client, name, past)}" if past else FIRST
                raise PromotionRefused(f"registered model {name} has no previous champion to go back to; {remedy}")
            if same and past[-1:] == [str(previous.version)]:
                raise PromotionRefused(f"version {previous.version} of {name} is champion already")
            candidate = look_up(client.get_model_version_by_alias, name, CANDIDATE)
            if candidate and champion and candidate.version == champion.version:
                client.delete_registered_model_alias(name, CANDIDATE)
            if champion and not same:
                client.set_model_version_tag(name, champion.version, ROLLED_BACK, f"to version {previous.version}")
            move(client, name, str(previous.version), past)
            client.delete_registered_model_alias(name, PREVIOUS)
            if ROLLED_BACK in previous.tags:
                client.delete_model_version_tag(name, previous.version, ROLLED_BACK)
    former = f" (was version {champion.version})" if champion else ""
    return f"rolled back: champion of {name} is version {previous.version}{former}"


def _find_former(client: Any, name: str, past: Sequence[str], to: str) -> Any:
    """Return a former champion version.

    Raises:
        PromotionRefused: it was never champion, or is gone.
    """
    version = look_up(client.get_model_version, name, to) if to in past else None
    if version is None:
        versions = _name_former(client, name, past)
        remedy = f"there are {versions}" if versions else FIRST
        raise PromotionRefused(f"version {to} of {name} was no champion, or is gone; {remedy}")
    return version


def _name_former(client: Any, name: str, past: Sequence[str]) -> str:
    """Return the versions that were champion and still exist."""
    return ", ".join(number for number in dict.fromkeys(past) if look_up(client.get_model_version, name, number))


@contextmanager
def lock_promotion(client: Any, name: str) -> Iterator[None]:
    """Allow one promotion or rollback of a model at a time, across all machines that share the store.

    MLflow moves an alias without checking its old value, but its store creates a registered model of a given name only
    once: the model ``<name>.promotion`` exists while a promotion runs, and others wait. One whose process ran on this
    machine and is gone, or that is older than LEASE_SECONDS, belongs to a dead process; it is renamed after its time of
    creation, which also works only once, and deleted. So two work at the same time only if one takes longer than
    LEASE_SECONDS, as when a champion is played again, or if a mark is taken for a dead one's at the instant in which it
    is made; each checks who is champion before it moves the alias. One that dies between the two aliases leaves both at
    the old champion, and the next promotion continues.

    Raises:
        PromotionRefused: another ran for WAIT_SECONDS.
    """
    lock, deadline = f"{name}.promotion", time.monotonic() + WAIT_SECONDS
    mark, waits = f"A promotion under way, by {this_process()} ({process_name()})", False
    while not done_once(client.create_registered_model, lock, description=mark):
        holder = look_up(client.get_registered_model, lock)
        if holder is None:
            continue
        if holder.description == mark:  # the server went away before this process could remove it
            break
        if _has_died(holder.description or "") or time.time() - holder.creation_timestamp / 1000 > LEASE_SECONDS:
            _release_stale_lock(client, lock, holder.creation_timestamp)
        elif time.monotonic() > deadline:
            raise PromotionRefused(f"{holder.description} has {name} since {WAIT_SECONDS:.0f} s; try again later")
        else:
            if not waits:
                print(f"{holder.description} has {name}; waiting, at most {WAIT_SECONDS:.0f} s")
            waits = True
            time.sleep(0.3)
    try:
        yield
    finally:
        holder = look_up(client.get_registered_model, lock)
        if holder and holder.description == mark:  # not that of whoever followed after LEASE_SECONDS
            done_once(client.delete_registered_model, lock)


def _has_died(mark: str) -> bool:
    """Return whether a mark's process ran on this machine and is gone; those of other machines are unknown."""
    holder = HOLDER.search(mark)
    return holder is not None and holder[2] == machine() and not is_alive(holder[1])


def _release_stale_lock(client: Any, lock: str, created: int) -> None:
    """Remove the mark of a dead promotion; of several that try one succeeds, and a newer mark is put back."""
    grave = f"{lock}.abandoned-{created}"
    if done_once(client.rename_registered_model, lock, grave):
        taken = look_up(client.get_registered_model, grave)
        # of another promotion, if a third process had removed the dead one's mark before
        is_newer = taken and taken.creation_timestamp != created
        if not (is_newer and done_once(client.rename_registered_model, grave, lock)):
            done_once(client.delete_registered_model, grave)
