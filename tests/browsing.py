"""A Chromium that a test drives like a person: it opens pages, clicks, types and reads.

It is controlled by the DevTools protocol over one socket; it can reach nothing beyond loopback.
"""

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from servers import until
from websockets.sync.client import ClientConnection, connect

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # with a network, missing files would go unnoticed
    # a mouse, which a headless browser lacks: pages show other fields for touch
    "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
    *("--remote-debugging-port=0", "about:blank"),
)
SECONDS = 90.0  # most pages take a few; a busy machine must not fail
MIDDLE = """(() => {{
  const found = [...document.querySelectorAll({css})].filter((one) => one.getClientRects().length
    && one.innerText.trim().match(new RegExp({text}))).pop();
  if (!found) return null;
  found.scrollIntoView({{block: "center"}});
  const box = found.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}})()"""


def chromium() -> str:
    """Return Chromium's path, by its name in Debian, Ubuntu or Google; skip the test if there is none."""
    found = [path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path]
    if not found:
        pytest.skip("no browser here: chromium was not found (Debian: apt install chromium)")
    return found[0]


@dataclass
class Page:
    """The only tab of a browser."""

    socket: ClientConnection
    numbers: Iterator[int]

    def ask(self, method: str, **params: Any) -> Any:
        """Return the answer to a protocol command."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv(timeout=SECONDS))).get("id") != number:
            pass
        assert "error" not in answer, (method, params, answer)
        return answer["result"]

    def run(self, script: str) -> Any:
        """Return the value of a script run in the page."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)["result"].get(
            "value"
        )

    def text(self) -> str:
        """Return the visible text in one line."""
        return " ".join(str(self.run("document.body ? document.body.innerText : ''")).split())

    def size(self, width: int, height: int) -> None:
        """Set the size of the screen; one below 500 px is a phone's."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def open(self, address: str, *words: str) -> None:
        """Open an address and wait for all words."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=address)
        self.wait(*words)

    def wait(self, *words: str) -> None:
        """Wait until the page shows all words, which are patterns."""
        stood = until(lambda: all(re.search(word, self.text()) for word in words), SECONDS)
        assert stood, f"{words} are not all on the page, where stands: {self.text()[:3000]}"

    def click(self, css: str, text: str = "") -> None:
        """Click the middle of the last element of a kind whose text matches."""
        script, deadline = MIDDLE.format(css=json.dumps(css), text=json.dumps(text)), time.monotonic() + SECONDS
        place = again = None
        while place is None or place != again:  # until it is there and has stopped moving
            assert time.monotonic() < deadline, f"no {css} with {text!r} on the page: {self.text()[:3000]}"
            time.sleep(0.1)
            place, again = self.run(script), place
        where = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", **where)
        self.ask("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def press(self, key: str, number: int) -> None:
        """Press a key, by name and number, in the focused element."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=number)

    def write(self, text: str) -> None:
        """Type a text into the focused element."""
        self.ask("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Save a screenshot."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start a browser with a new profile in this folder."""
    command = [chromium(), *FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file = profile / "DevToolsActivePort"
        assert until(lambda: port_file.exists() and port_file.read_text().count("\n"), SECONDS), (
            "chromium did not start"
        )
        port = port_file.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=SECONDS) as answer:
            (page,) = (one for one in json.load(answer) if one["type"] == "page")
        with connect(page["webSocketDebuggerUrl"], max_size=None, compression=None) as socket:
            opened = Page(socket, count(1))
            opened.ask("Emulation.setFocusEmulationEnabled", enabled=True)
            yield opened
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)
