"""Fetching pages from a real web server on loopback: manners, failures, resuming."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from downloading import passages, run, write_rows
from harr_medquad.scrape import scrape
from harr_medquad.settings import ScrapeParams
from serving import running

from harr.params.download import FunctionDatasetParams

ROBOTS = """# harr is welcome, others are not
User-agent: *
Disallow: /

User-agent: other
User-agent: HARR
Disallow: /private/
Allow: /private/open
Disallow: /*.pdf$
"""


@dataclass
class Site:
    """What the server says, and what it was asked: (time, path, user agent)."""

    address: str = ""
    robots: tuple[int, str] = (200, ROBOTS)
    pages: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[float, str, str]] = field(default_factory=list)
    now: Callable[[], float] = time.monotonic

    def count(self, path: str) -> int:
        return [seen for _, seen, _ in self.asked].count(path)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((made.now(), self.path, self.headers["user-agent"]))
            found = made.robots if self.path == "/robots.txt" else made.pages.get(self.path, (404, "gone"))
            status, body, *more = found() if callable(found) else found
            headers = {"content-type": "text/html; charset=utf-8", **(more[0] if more else {})}
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with running(Handler) as made.address:
        yield made


@pytest.fixture
def clock(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass but that of pauses, which pass at once."""
    clock = SimpleNamespace(now=0.0)

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock.now += timeout or 0.0
            return self.is_set()

    site.now = lambda: clock.now
    time_module = SimpleNamespace(monotonic=site.now, strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr("harr_medquad.scrape.time", time_module)
    monkeypatch.setattr("harr.io.retry.time", time_module)
    monkeypatch.setattr("harr_medquad.scrape.threading", SimpleNamespace(Event=Stop, Lock=threading.Lock))


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets seconds of the module by name; the tests wait for as little as they can."""

    def set_seconds(**seconds: float) -> None:
        for name, value in seconds.items():
            monkeypatch.setattr("harr_medquad.scrape." + name, value)

    set_seconds(SECONDS_BETWEEN=0.0, TIMEOUT_SECONDS=2.0, DEADLINE_SECONDS=3.0)
    return set_seconds


def settings(tmp_path: Path) -> ScrapeParams:
    return ScrapeParams(pages=str(tmp_path / "pages"), user_agent="harr/1 (mail)")


def page(text: str) -> tuple[int, str]:
    return 200, f"<html><nav>Menu</nav><article><h1>Title</h1><p>{text}</p></article></html>"


def test_pages_are_fetched_once_and_the_article_is_kept(site: Site, tmp_path: Path) -> None:
    site.pages = {
        "/a": page("Flu &amp; <b>c</b>old."),
        "/b": (200, '<div id="mplus-content"><div>In</div>side</div><p>Out'),
        "/c": page("New."),
    }
    urls = [f"{site.address}{path}" for path in ("/a", "/b", "/a")]
    pages, counts = scrape(urls, settings(tmp_path))
    assert counts == {"pages": 2.0, "pages_failed": 0.0}
    assert pages.text(urls[0]) == "Title Flu & cold." and pages.text(urls[1]) == "In side"
    assert {agent for _, _, agent in site.asked} == {"harr/1 (mail)"}
    scrape(urls, settings(tmp_path))
    assert site.count("/a") == site.count("/b") == site.count("/robots.txt") == 1, "all is on disk"
    pages._database.execute("update page set text = 'Other text.' where url = ?", urls[:1])
    assert pages.text(urls[0]) == "", "damaged"
    pages, _ = scrape([*urls, f"{site.address}/c"], settings(tmp_path))
    assert pages.text(urls[0]) == "Title Flu & cold."
    assert (site.count("/a"), site.count("/b"), site.count("/c")) == (2, 1, 1), "what is missing or damaged is fetched"


def test_what_robots_txt_forbids_is_never_asked_for(site: Site, tmp_path: Path) -> None:
    paths = ("/private/x", "/private/open", "/x.pdf", "/x.pdf?page=1")
    site.pages = dict.fromkeys(paths, page("Text."))
    pages, counts = scrape([site.address + path for path in paths], settings(tmp_path))
    assert counts["pages_failed"] == 2.0
    forbidden = (f"{site.address}/private/x", f"{site.address}/x.pdf")
    assert pages.failures() == dict.fromkeys(forbidden, "robots.txt disallows it")
    assert site.count("/private/x") == site.count("/x.pdf") == 0


@pytest.mark.parametrize(("robots", "fetched"), [((404, ""), 1), ((503, ""), 0)])
def test_without_robots_txt_all_is_allowed_and_with_a_broken_one_nothing(
    robots: tuple[int, str], fetched: int, site: Site, tmp_path: Path, pace: Callable[..., None]
) -> None:
    site.robots, site.pages = robots, {"/a": page("Text.")}
    pace(DEADLINE_SECONDS=0.1)
    pages, _ = scrape([f"{site.address}/a"], settings(tmp_path))
    assert site.count("/a") == fetched
    assert list(pages.failures().values()) == ([] if fetched else ["robots.txt cannot be read (HTTP 503)"])


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("delay", "between", "times"),
    [("soon", 0.2, [0, 0.2, 0.4, 0.6]), ("30", 0.2, [0, 0.2, 30.2, 60.2]), ("900", 0.0, [0, 0, 60, 120])],
)
def test_a_host_is_asked_at_its_own_pace(
    site: Site, tmp_path: Path, pace: Callable[..., None], delay: str, between: float, times: list[float]
) -> None:
    site.robots = (200, f"User-agent: *\nCrawl-delay: {delay}")
    site.pages = {f"/{number}": page(f"Page {number}.") for number in range(3)}
    pace(SECONDS_BETWEEN=between)
    scrape([f"{site.address}/{number}" for number in range(3)], settings(tmp_path))
    assert [moment for moment, _, _ in site.asked] == pytest.approx(times)


@pytest.mark.usefixtures("clock")
def test_a_busy_server_is_asked_again_until_the_deadline(site: Site, tmp_path: Path, pace: Callable[..., None]) -> None:
    replies = iter([(503, "busy"), (429, "slow", {"retry-after": "40"}), page("At last.")])
    site.pages = {"/a": lambda: next(replies), "/b": (500, "broken")}
    urls = [f"{site.address}/a", f"{site.address}/b"]
    pace(DEADLINE_SECONDS=60.0)
    pages, counts = scrape(urls, settings(tmp_path))
    assert pages.text(urls[0]) == "Title At last."
    assert counts["pages_failed"] == 1.0 and pages.failures() == {urls[1]: "HTTP 500"}
    first, second, third = (moment for moment, path, _ in site.asked if path == "/a")
    assert 1 <= second - first <= 2 and third - second == pytest.approx(40)
    broken = [moment for moment, path, _ in site.asked if path == "/b"]
    assert len(broken) > 3 and broken[-1] - broken[0] <= 60


def test_failures_keep_their_reason_and_are_tried_again(site: Site, tmp_path: Path, pace: Callable[..., None]) -> None:
    site.pages = {
        "/empty": (200, "<p>No article; room 404 is closed.</p>"),
        "/pdf": (200, "%PDF", {"content-type": "application/pdf"}),
        "/round": (302, "", {"location": "/round"}),
        "/moved": (301, "", {"location": "/new"}),
        "/new": page("Found at 404 Main Street."),
        "/away": (302, "", {"location": "http://a..b/x"}),
    }
    wrong = ["ftp://host/x", "http://[bad/x", "http://\u2100.invalid/x", "http://a..b/x", "http://a:99999/x"]
    wrong.append(f"{site.address}/away")
    urls = {path: site.address + path for path in ("/gone", "/empty", "/pdf", "/round", "/moved")}
    closed = "http://127.0.0.1:1/a"
    pace(DEADLINE_SECONDS=0.5)
    pages, counts = scrape([*urls.values(), closed, *wrong], settings(tmp_path))
    reasons = pages.failures()
    assert counts == {"pages": 1.0, "pages_failed": 11.0}
    assert reasons.pop(closed).startswith("robots.txt cannot be read (")
    assert reasons == {
        urls["/gone"]: "HTTP 404",
        urls["/empty"]: "neither an article nor div#mplus-content in it",
        urls["/pdf"]: "content type application/pdf",
        urls["/round"]: "more than 5 redirects",
    } | dict.fromkeys(wrong, "no http address")
    assert pages.text(urls["/moved"]) == "Title Found at 404 Main Street."
    site.pages["/gone"] = page("Back again.")
    pages, counts = scrape([urls["/gone"], urls["/moved"]], settings(tmp_path))
    assert counts["pages_failed"] == 0.0 and pages.text(urls["/gone"]) == "Title Back again."
    assert site.count("/moved") == 1


def test_medquad_reads_pages_and_falls_back_to_answers(site: Site, tmp_path: Path, tiny: str) -> None:
    site.pages = {"/heart": page("The whole page about the heart.")}
    rows = [
        {"id": name, "question": f"What is {name}?", "answer": f"A {name}.", "url": f"{site.address}/{name}"}
        for name in ("heart", "bone")
    ]
    files = {split: (write_rows(f"{split}.jsonl", [row]),) for split, row in zip(("train", "test"), rows, strict=True)}
    params = FunctionDatasetParams(
        dataset="function",
        function="harr_medquad.dataset:DATASET",
        settings={"tokenizer": tiny, **files, "scrape": settings(tmp_path).model_dump()},
    )
    figures = run(params)
    assert (figures["pages"], figures["pages_failed"], figures["documents"]) == (1.0, 1.0, 2.0)
    assert [passage.text for passage in passages()] == ["Title The whole page about the heart.", "A bone."]
    assert run(params)["pages_failed"] == 1.0
    assert site.count("/heart") == 1 and site.count("/bone") == 2
