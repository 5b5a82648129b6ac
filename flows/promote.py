"""Move the registry alias `champion`: `python -m flows.promote [--rollback]`."""

import argparse

from prefect import flow

from flows.runtime.command import run_command, run_stage
from harr.params import Params
from tasks.registry.promote import promote as promote_candidate, rollback as roll_back


@flow(name="promote")
async def promote() -> None:
    """Make the candidate the champion if the paired interval against the champion lies above 0."""
    print(promote_candidate(Params.load()))


@flow(name="rollback")
async def rollback() -> None:
    """Make the previous champion the champion again."""
    print(roll_back(Params.load()))


def command() -> None:
    """Promote, or with --rollback go back."""
    parser = argparse.ArgumentParser(prog="python -m flows.promote", description=promote.__doc__)
    parser.add_argument("--rollback", action="store_true", help=rollback.__doc__)
    chosen = rollback if parser.parse_args().rollback else promote
    run_command(lambda: run_stage(chosen))


if __name__ == "__main__":
    command()
