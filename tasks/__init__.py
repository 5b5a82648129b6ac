"""Stages that DVC runs as `python -m tasks.<stage>`. Importing this sets switches that libraries read at import.

Switches that the environment already sets stay as they are.
"""

import contextlib
import gc
import io
import os
import pwd
import re
import signal
import sys
import warnings


def _stop_at_once(number: int, frame: object) -> None:
    with contextlib.suppress(OSError):
        if os.environ.get("RANK", "0") == "0":
            os.write(2, f"stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)


# Lets a command of ours be stopped during its imports, too; tasks.runtime.command later replaces these handlers.
if sys.argv[0] == "-m" or os.path.basename(sys.argv[0]) == "harr":
    for quiet in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(quiet) in (signal.SIG_DFL, signal.default_int_handler):  # a background job ignores it
            signal.signal(quiet, _stop_at_once)

SWITCHES = {
    "DO_NOT_TRACK": "true",  # Prefect, MLflow, Hugging Face
    "DVC_NO_ANALYTICS": "true",
    "GRPC_VERBOSITY": "NONE",  # its "too_many_pings"; errors reach us as exceptions
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # transformers shows one per loaded model
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # a server that is down is reported after 15 s, not 4 minutes
    "OMP_WAIT_POLICY": "PASSIVE",  # waiting threads leave their cores to other programs
    "TOKENIZERS_PARALLELISM": "true",
}

for name, value in SWITCHES.items():
    os.environ.setdefault(name, value)


def bypass_proxies() -> None:
    """Set `no_proxy` so that clients, in child processes too, reach this machine directly when a proxy is set.

    httpx rejects IPv6 addresses with brackets or a mask there; no client understands an IPv6 mask.
    """
    proxied = any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES)
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        hosts = (os.environ.get(name) or os.environ.get(other, "")).split(",")
        readable = [re.sub(r"^\s*\[([^]]*)\]\s*$", r"\1", host) for host in hosts if not re.search(r":.*/|\]:", host)]
        if "*" not in hosts and (proxied or readable != hosts):  # urllib accepts a star only on its own
            os.environ[name] = ",".join(dict.fromkeys(host for host in (*readable, *LOOPBACK) if host))


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
bypass_proxies()
try:
    pwd.getpwuid(os.getuid())
except KeyError:  # as in Kubernetes; DVC needs a name
    os.environ.setdefault("USER", str(os.getuid()))
if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal's encoding may lack characters of users' texts
    sys.stdout.reconfigure(errors="backslashreplace")
try:
    os.getcwd()
except FileNotFoundError:
    sys.exit("error: the current folder is gone; change to the folder of a harr project")


# Imports create a million long-lived objects: collecting less often saves a quarter of the start-up time.
gc.set_threshold(500_000, 10, 10)
# Libraries warn each other about future names, which users of harr can do nothing about.
warnings.filterwarnings("ignore", category=FutureWarning)
