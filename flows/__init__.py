"""What Prefect schedules, and the command `harr`. Importing this package sets Prefect's switches.

Switches that the environment already sets stay as they are.
"""

import contextlib
import os

import tasks as tasks

SWITCHES = {
    "PREFECT_HOME": ".harr/prefect",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # a flow prints its own lines
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",  # its pages contact amplitude.com despite the analytics switch
}
HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""Environment variable: seconds between a run's heartbeats."""

for name, value in SWITCHES.items():
    os.environ.setdefault(name, value)
os.environ["PREFECT_HOME"] = os.path.abspath(os.environ["PREFECT_HOME"])  # a recipe runs in another folder
with contextlib.suppress(OSError):  # `--help` needs none; what writes there says what is wrong
    os.makedirs(os.environ["PREFECT_HOME"], exist_ok=True)
