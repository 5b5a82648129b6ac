"""Unusual terminals and accounts: another encoding, no colours, a user without a name."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from flows.terminal import paint, show

ACCOUNT = """
import os, pwd
def nobody(number): raise KeyError(f"uid not found: {number}")
pwd.getpwuid = nobody
import getpass
import tasks
print(getpass.getuser(), os.getuid(), "Zoé, 北京")
"""


@pytest.mark.services
def test_an_account_without_a_name_and_a_terminal_in_ascii() -> None:
    """DVC, which harr starts, calls getpass; a user's texts may be in any script."""
    names = ("USER", "LOGNAME", "LNAME", "USERNAME")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-c", ACCOUNT], env=environment, capture_output=True, check=True)
    assert done.stdout == f"{os.getuid()} {os.getuid()} Zo\\xe9, \\u5317\\u4eac\n".encode()


def test_json_is_read_in_any_encoding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        show({"name": "Zoé 北京 😀"}, [], as_json=True)
    printed = capsys.readouterr().out
    assert printed.isascii() and json.loads(printed) == {"name": "Zoé 北京 😀"}


@pytest.mark.parametrize(
    ("variables", "painted"), [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)]
)
def test_colours_are_for_a_terminal_that_has_them(
    variables: dict[str, str], painted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    assert paint("ok") == ("\033[32mok\033[0m" if painted else "ok")
