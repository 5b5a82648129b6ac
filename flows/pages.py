"""Pages of a project over HTTP, so that links from Prefect open: `harr up` starts it as `python -m flows.pages PORT`.

It serves reports and Data Docs, of this folder and of the recipes' folders, and nothing else of them.
"""

import re
import sys
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from posixpath import normpath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tasks.paths import CHECKS, REPORTS, RUNS

SITES = (REPORTS, CHECKS.parent)
SERVED = re.compile(rf"/({re.escape(str(RUNS))}/[^/.][^/]*/)?({'|'.join(map(re.escape, map(str, SITES)))})/.+")


class PageHandler(SimpleHTTPRequestHandler):
    """A handler that answers for files below SITES, for requests that name this machine by its own name."""

    def send_head(self) -> Any:
        """Send the headers of a file and return it, or refuse."""
        path = normpath(unquote(urlsplit(self.path).path))
        if self.headers.get("Host", "").rpartition(":")[0] not in ("127.0.0.1", "localhost"):
            return self.send_error(403)
        if path == "/":
            return self._list()
        return super().send_head() if SERVED.fullmatch(path) else self.send_error(404)

    def list_directory(self, path: Any) -> None:
        """Refuse to list a folder."""
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Log no request."""

    def _list(self) -> None:
        """Send the first page: a link to each page that a person begins with."""
        homes = [Path(), *sorted(path for path in RUNS.glob("*") if path.is_dir())]
        pages = [page for home in homes for site in SITES for page in [home / site / "index.html"] if page.exists()]
        links = "".join(f'<li><a href="/{quote(page.as_posix())}">{escape(page.as_posix())}</a>' for page in pages)
        style = "body{font:16px sans-serif;margin:2em;line-height:1.6}"
        listing = f"<ul>{links}</ul>" if pages else "<p>No page yet; run <code>harr run</code>.</p>"
        body = (
            f"<!doctype html><meta name=viewport content=width=device-width><title>harr</title><style>{style}</style>"
        )
        content = f"{body}<h1>Pages of {escape(Path().resolve().name)}</h1>{listing}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def pages_command(port: int) -> list[str]:
    """Return the command that serves the pages of the current folder on loopback."""
    return [sys.executable, "-m", "flows.pages", str(port)]


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), PageHandler).serve_forever()
