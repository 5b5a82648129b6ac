"""Fetch web pages as a guest: what robots.txt allows, one at a time per host, kept on disk, failures retried later.

Pages are kept in a database by address. A fetched page is not fetched again; a failed one is kept with the reason, and
the next run tries it again.
"""

import hashlib
import math
import queue
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
from protego import Protego
from tqdm import tqdm

from harr.errors import one_line
from harr.io.progress import bar, stoppable
from harr.io.retry import retry
from harr_medquad.settings import ScrapeParams

HOSTS = 8
"""Number of hosts asked at a time."""
SECONDS_BETWEEN, TIMEOUT_SECONDS, DEADLINE_SECONDS = 1.0, 20.0, 90.0
"""Seconds between requests to a host (longer if its robots.txt asks for it), of one attempt, and of a page in all."""
REDIRECTS = 5
MAX_BYTES = 8_000_000
"""Size of the largest page that may be an article."""
LONGEST_DELAY = 60.0
INLINE = frozenset("a abbr b cite code em font i mark q s small span strong sub sup u".split())
"""Tags that do not separate words."""
UNREAD = ("script", "style", "noscript", "template", "svg", "nav")


class Pages:
    """A store of fetched pages by address, on disk."""

    def __init__(self, folder: Path) -> None:
        """Open or create the pages kept in ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(folder / "pages.sqlite", isolation_level=None)
        self._database.execute(
            "create table if not exists page (url text primary key, reason text, sha256 text, text text, fetched text)"
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def text(self, url: str) -> str:
        """Return the text of a page; "" if it was not fetched or is damaged."""
        row = self._database.execute("select text, sha256 from page where url = ? and reason = ''", (url,)).fetchone()
        return str(row[0]) if row and _digest(row[0]) == row[1] else ""

    def keep(self, url: str, text: str, reason: str) -> None:
        """Store a page's text, or the reason for its absence; it is on disk on return."""
        fetched = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        values = (url, reason, _digest(text), text, fetched)
        self._database.execute("insert or replace into page values (?, ?, ?, ?, ?)", values)

    def failures(self) -> dict[str, str]:
        """Return the reason for each failed page, by address."""
        return dict(self._database.execute("select url, reason from page where reason != '' order by url"))


def scrape(urls: Iterable[str], params: ScrapeParams) -> tuple[Pages, dict[str, float]]:
    """Fetch the pages that are not kept yet; return all pages, and counts.

    A page that cannot be fetched is no error: it is kept with its reason, and the commonest reasons are printed.
    """
    pages = Pages(Path(params.pages))
    addresses = list(dict.fromkeys(urls))
    missing = [url for url in addresses if not pages.text(url)]
    tried = set(missing)
    with bar(total=len(addresses), initial=len(addresses) - len(missing), desc="pages", unit="page") as progress:
        for url, text, reason in stoppable(_fetch(missing, params)):
            pages.keep(url, text, reason)
            progress.update()
    failed = {url: reason for url, reason in pages.failures().items() if url in tried}
    for reason, count in Counter(failed.values()).most_common(3):
        tqdm.write(f"{count} pages were not fetched: {reason}; the next run tries again")
    return pages, {"pages": float(len(addresses) - len(failed)), "pages_failed": float(len(failed))}


def _fetch(urls: Sequence[str], params: ScrapeParams) -> Iterator[tuple[str, str, str]]:
    """Yield (address, text, reason) of every page as it comes; hosts in parallel, a host's pages one by one."""
    by_host: dict[str, list[str]] = {}
    for url in urls:
        by_host.setdefault(_host_of(url), []).append(url)
    pages: queue.SimpleQueue[tuple[str, str, str] | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    with (
        httpx.Client(headers={"user-agent": params.user_agent}, timeout=TIMEOUT_SECONDS) as client,
        ThreadPoolExecutor(HOSTS, thread_name_prefix="pages") as pool,
    ):
        guest = _Guest(client, params, stop)

        def visit(addresses: list[str]) -> None:
            try:
                for url in addresses:
                    if stop.is_set():
                        return
                    pages.put((url, *guest.page(url)))
            except BaseException as error:
                pages.put(error)

        for addresses in by_host.values():
            pool.submit(visit, addresses)
        try:
            for _ in urls:
                page = pages.get()
                if isinstance(page, BaseException):
                    raise page
                yield page
        finally:
            stop.set()


def _host_of(url: str) -> str:
    """Return the host and port of an http address, "" for anything else.

    >>> [_host_of(url) for url in ("http://a.org:80/x", "ftp://a.org/", "http://[bad/x", "http://a..b/x")]
    ['a.org:80', '', '', '']
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
        httpx.Request("GET", url)
    except (ValueError, httpx.InvalidURL):  # invalid addresses and impossible names
        return ""
    return parts.netloc if host and port != 0 and parts.scheme in ("http", "https") else ""


class _Host:
    """The state of a host: when it may be asked next, and its robots.txt."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next = 0.0
        self.delay = 0.0
        self.rules: Protego | None = None
        self.refused = ""


class _Failed(Exception):
    """A page that cannot be fetched; the text is the reason, ``wait_seconds`` when it may be worth trying again."""

    def __init__(self, reason: str, wait_seconds: float = math.inf) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


def _may_come(error: Exception) -> bool:
    """Return whether a page may be available later."""
    return isinstance(error, _Failed) and error.wait_seconds < math.inf


class _Guest:
    """A polite client that requests pages from hosts, shared by several threads."""

    def __init__(self, client: httpx.Client, params: ScrapeParams, stop: threading.Event) -> None:
        self._client, self._stop = client, stop
        self._name = params.user_agent.split("/")[0].split()[0]
        self._hosts: dict[str, _Host] = {}
        self._lock = threading.Lock()

    def page(self, url: str) -> tuple[str, str]:
        """Return (text, "") of a page's article, or ("", reason)."""
        try:
            return self._article(self._follow(url, time.monotonic() + DEADLINE_SECONDS, robots=True)), ""
        except _Failed as reason:
            return "", str(reason)

    def _follow(self, url: str, deadline: float, *, robots: bool) -> httpx.Response:
        """Return the answer after all redirects; with ``robots``, robots.txt must allow each address."""
        for _ in range(REDIRECTS + 1):
            if not _host_of(url):
                raise _Failed("no http address")
            if robots:
                self._check_robots(url, deadline)
            answer = self._ask(url, deadline)
            if answer.next_request is None:
                return answer
            url = urljoin(url, answer.headers["location"])
        raise _Failed(f"more than {REDIRECTS} redirects")

    def _article(self, answer: httpx.Response) -> str:
        if answer.status_code != 200:
            raise _Failed(f"HTTP {answer.status_code}")
        kind = answer.headers.get("content-type", "text/html").split(";")[0].strip()
        if kind not in ("text/html", "application/xhtml+xml"):
            raise _Failed(f"content type {kind}")
        text = article_text(answer.text)
        if not text:
            raise _Failed("neither an article nor div#mplus-content in it")
        return text

    def _host(self, url: str) -> _Host:
        with self._lock:
            return self._hosts.setdefault(urlsplit(url).netloc, _Host())

    def _check_robots(self, url: str, deadline: float) -> None:
        host, parts = self._host(url), urlsplit(url)
        if host.rules is None and not host.refused:
            host.rules = self._robots(f"{parts.scheme}://{parts.netloc}/robots.txt", deadline, host)
            host.delay = min(host.rules.crawl_delay(self._name) or 0.0, LONGEST_DELAY)
        if host.refused:
            raise _Failed(host.refused)
        if host.rules and not host.rules.can_fetch(url, self._name):
            raise _Failed("robots.txt disallows it")

    def _robots(self, url: str, deadline: float, host: _Host) -> Protego:
        """Return the rules of robots.txt: if missing (4xx) all is allowed, if unreadable nothing is."""
        try:
            answer = self._follow(url, deadline, robots=False)
        except _Failed as reason:
            host.refused = f"robots.txt cannot be read ({reason})"
            return Protego.parse("")
        return Protego.parse(answer.text if answer.status_code == 200 else "")

    def _ask(self, url: str, deadline: float) -> httpx.Response:
        """Return an answer below 500 and not 429; retry anything else until the deadline."""
        seconds = deadline - time.monotonic()
        return retry(lambda: self._try_once(url), seconds, _may_come, first=2.0, longest=30.0, sleep=self._stop.wait)

    def _try_once(self, url: str) -> httpx.Response:
        host = self._host(url)
        with host.lock:
            if self._stop.wait(max(0.0, host.next - time.monotonic())):
                raise _Failed("the run was stopped")
            try:
                answer = self._read(url)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise _Failed(one_line(error), wait_seconds=0.0) from None
            finally:
                host.next = time.monotonic() + max(SECONDS_BETWEEN, host.delay)
        if answer.status_code < 500 and answer.status_code != 429:
            return answer
        wish = answer.headers.get("retry-after", "")
        raise _Failed(f"HTTP {answer.status_code}", wait_seconds=float(wish) if wish.isdecimal() else 0.0)

    def _read(self, url: str) -> httpx.Response:
        """Send one request and read its body up to ``MAX_BYTES``."""
        with self._client.stream("GET", url) as answer:
            if answer.next_request is not None:
                return answer
            body = bytearray()
            ends = time.monotonic() + TIMEOUT_SECONDS
            for part in answer.iter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise _Failed(f"more than {MAX_BYTES // 1_000_000} MB")
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout(f"not whole after {TIMEOUT_SECONDS:g} s")
            headers = [(k, v) for k, v in answer.headers.items() if k not in ("content-encoding", "content-length")]
            return httpx.Response(answer.status_code, headers=headers, content=bytes(body), request=answer.request)


def article_text(html: str) -> str:
    """Return the text of the first ``article`` or ``div#mplus-content`` of a page, white space folded; "" without one.

    >>> article_text("<p>Menu</p><article><h1>Flu</h1><p>A <b>v</b>irus.<script>x()</script></p></article><article>Ad")
    'Flu A virus.'
    """
    reader = _Article()
    reader.feed(html)
    reader.close()
    return " ".join("".join(reader.parts).split())


class _Article(HTMLParser):
    """A parser that collects the text of the first article."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._tag, self._depth, self._unread, self._done = "", 0, 0, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._done:
            return
        if not self._depth:
            if tag == "article" or (tag == "div" and dict(attrs).get("id") == "mplus-content"):
                self._tag, self._depth = tag, 1
            return
        self._depth += tag == self._tag
        self._unread += tag in UNREAD
        self._part(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._part(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._depth:
            return
        self._unread -= tag in UNREAD and self._unread > 0
        self._depth -= tag == self._tag
        self._done = not self._depth
        self._part(tag)

    def handle_data(self, data: str) -> None:
        if self._depth and not self._unread:
            self.parts.append(data)

    def _part(self, tag: str) -> None:
        if tag not in INLINE:
            self.parts.append(" ")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
