"""Send to MLflow what stages kept while its server was away: `python -m flows.send`. The next stage does so, too."""

import argparse

from flows.common import run_command


def send() -> None:
    """Send it, and print a line for each server."""
    from tasks.tracking import send_kept

    print("\n".join(send_kept()) or "nothing waits to be sent")


def command() -> None:
    """The command line."""
    argparse.ArgumentParser(prog="python -m flows.send", description="Send what MLflow has not received.").parse_args()
    run_command(send)


if __name__ == "__main__":
    command()
