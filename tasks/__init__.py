"""What DVC runs: `python -m tasks.<stage>`. Importing this package sets switches that libraries read at import.

None of them is forced: what the environment already says stays.
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


# A command of ours can be stopped while it imports, too; tasks.runtime.command then puts its own handlers in place
# of these.
if sys.argv[0] == "-m" or os.path.basename(sys.argv[0]) == "harr":
    for quiet in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(quiet) in (signal.SIG_DFL, signal.default_int_handler):  # a background job stays deaf
            signal.signal(quiet, _stop_at_once)

SWITCHES = {
    "DO_NOT_TRACK": "true",  # Prefect, MLflow, Hugging Face
    "DVC_NO_ANALYTICS": "true",
    "GRPC_VERBOSITY": "NONE",  # its "too_many_pings"; what goes wrong reaches us as an exception
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # transformers' of every model that is loaded
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # a server that is down is named after 15 s, not after 4 minutes
    "OMP_WAIT_POLICY": "PASSIVE",  # a thread that waits for another leaves its core to other programs
    "TOKENIZERS_PARALLELISM": "true",
}

for name, value in SWITCHES.items():
    os.environ.setdefault(name, value)


def bypass_proxies() -> None:
    """Have every client, also of a child process, reach this machine directly where a proxy is set: `no_proxy`.

    httpx makes no client where an address of IPv6 has brackets or a mask there; no client reads a mask of IPv6.
    """
    proxied = any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES)
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        hosts = (os.environ.get(name) or os.environ.get(other, "")).split(",")
        readable = [re.sub(r"^\s*\[([^]]*)\]\s*$", r"\1", host) for host in hosts if not re.search(r":.*/|\]:", host)]
        if "*" not in hosts and (proxied or readable != hosts):  # urllib knows a star only where it stands alone
            os.environ[name] = ",".join(dict.fromkeys(host for host in (*readable, *LOOPBACK) if host))


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
bypass_proxies()
try:
    pwd.getpwuid(os.getuid())
except KeyError:  # as in Kubernetes; DVC, which we start, wants a name
    os.environ.setdefault("USER", str(os.getuid()))
if isinstance(sys.stdout, io.TextIOWrapper):  # what a user's texts hold may not be in a terminal's encoding
    sys.stdout.reconfigure(errors="backslashreplace")
try:
    os.getcwd()
except FileNotFoundError:
    sys.exit("error: the current folder is gone; change to the folder of a harr project")


# Imports make a million objects that are never garbage: looking for it less often saves a quarter of the start.
gc.set_threshold(500_000, 10, 10)
# Libraries warn each other about names to come; nothing a user of harr can act on.
warnings.filterwarnings("ignore", category=FutureWarning)
