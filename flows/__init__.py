"""What Prefect schedules, and the command `harr`. Importing this package sets Prefect's switches.

None of them is forced: what the environment already says stays.
"""

import os

import tasks as tasks

SWITCHES = {
    "PREFECT_HOME": os.path.abspath(".harr/prefect"),
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # a flow's lines are printed by themselves
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}

for name, value in SWITCHES.items():
    os.environ.setdefault(name, value)
os.makedirs(os.environ["PREFECT_HOME"], exist_ok=True)
