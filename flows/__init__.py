"""What Prefect schedules, and the command `harr`. Importing this package sets Prefect's switches.

None of them is forced: what the environment already says stays.
"""

import os

import tasks as tasks

SWITCHES = {
    "PREFECT_HOME": ".harr/prefect",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # a flow's lines are printed by themselves
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",  # its pages ask amplitude.com, whatever the switch of analytics says
}
HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""The variable by which a run says that it lives, every so many seconds."""

for name, value in SWITCHES.items():
    os.environ.setdefault(name, value)
os.environ["PREFECT_HOME"] = os.path.abspath(os.environ["PREFECT_HOME"])  # a recipe runs in another folder
os.makedirs(os.environ["PREFECT_HOME"], exist_ok=True)
