"""Send to MLflow what stages kept while its server was away: `harr report --send`. The next stage does so, too."""

import contextlib
from pathlib import Path

from flows.runtime.workspace import RUNS


def send() -> None:
    """Send what waits here and in the folders of recipes, and print a line for each server."""
    from tasks.tracking.report import send_reports

    some = False
    for place in [Path(), *sorted(RUNS.glob("*/"))]:
        with contextlib.chdir(place):  # a report names its files from the folder of its run
            for line in send_reports():
                print(line if place == Path() else f"{place}: {line}")
                some = True
    if not some:
        print("nothing waits to be sent")
