"""Data Docs that need no network: Great Expectations takes styles, scripts and pictures of its pages from the web."""

import re
from pathlib import Path
from urllib.parse import quote

from harr.io.files import write_text

ELSEWHERE = re.compile(
    r"<script\b[^>]*\bsrc=[\"']https?:[^>]*>\s*</script>|<link\b[^>]*\bhref=[\"']https?:[^>]*>"
    r"|<img\b[^>]*\bsrc=[\"']https?:[^>]*>|<script>(?:(?!</script>).)*\$[(.`](?:(?!</script>).)*</script>"
    r"|<footer\b.*?</footer>",
    re.DOTALL,
)
"""What a page has from other machines, the scripts that need jQuery, and an advertisement."""
STATUS = re.compile(r"Status:\s*(?:<[^>]*>\s*)*(\w+)")
STYLE = """<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1100px; padding: 1em; color: #222; }
h1, h2, h3, h4, h5, h6, .h6 { font-size: 1em; font-weight: 600; margin: .6em 0 .2em; }
h4 { font-size: 1.3em; }
ol, ul { padding-left: 1.2em; }
.breadcrumb { list-style: none; padding: 0; color: #666; }
table { border-collapse: collapse; width: 100%; margin: .5em 0 1em; }
td, th { border-bottom: 1px solid #ddd; padding: .3em .6em; text-align: left; overflow-wrap: anywhere; }
.table-responsive { overflow-x: auto; }
.alert { background: #f2f4f5; padding: .4em .8em; margin-top: 1em; }
.card.mb-3, .ge-walkthrough-modal, .modal, [data-toggle=collapse] { display: none; }
.sticky { position: static; }
.badge { background: #e6eef0; border-radius: 3px; padding: 0 .3em; }
.fa-check-circle::before { content: "\\2714"; color: #17803d; font-style: normal; }
.fa-times::before, .fa-exclamation-triangle::before { content: "\\2718"; color: #b3261e; font-style: normal; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1d1f; color: #e4e6e7; }
  .alert, .badge { background: #2b2f32; }
  td, th { border-color: #444; }
  a { color: #7fc8d8; }
}
</style></head>"""
PHONE = '<meta name="viewport" content="width=device-width, initial-scale=1">'
UNNAMED = {" / __none__": "", "__none__": "none", "Data asset: None<br>": ""}
"""What Great Expectations says where a table has no name."""


def make_offline(site: Path) -> None:
    """Rewrite the pages below ``site`` that ask other machines, and the first page as a list of all checks.

    What was rewritten before stays as it is.
    """
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if (found := ELSEWHERE.sub("", text)) != text:
            for old, new in UNNAMED.items():
                found = found.replace(old, new)
            write_text(page, found.replace("</head>", STYLE, 1))
    checks = "".join(map(_suite, sorted((site / "validations").glob("*"), key=_latest)))
    head = f"<!doctype html><html><head><meta charset=utf-8>{PHONE}<title>Checks of the data</title>{STYLE}"
    write_text(site / "index.html", f"{head}<body><h4>Checks of the data</h4><table>{checks}</table></body></html>")


def _suite(folder: Path) -> str:
    """Return a row: a suite's name, and its pages, the latest first, each with what came of the check."""
    links = ", ".join(
        f'<a href="{quote(page.relative_to(folder.parents[1]).as_posix())}">{_time(page)}</a> {_status(page)}'
        for page in _pages(folder)
    )
    return f"<tr><th>{folder.name}</th><td>{links}</td></tr>"


def _pages(folder: Path) -> list[Path]:
    """Return the pages of a suite by the time of the check, the latest first."""
    return sorted(folder.rglob("*.html"), key=lambda page: page.parent.name, reverse=True)


def _latest(folder: Path) -> list[str]:
    """Return the time of a suite's latest check, by which suites stand in the order of the pipeline."""
    return [page.parent.name for page in _pages(folder)[:1]]


def _status(page: Path) -> str:
    """Return what came of a check, in the words of its page: succeeded or failed."""
    found = STATUS.search(page.read_text(encoding="utf-8"))
    return found[1].lower() if found else ""


def _time(page: Path) -> str:
    """Return when a check was made, from the folder of its page, as 20261123T095221.402483Z."""
    day, _, clock = page.parent.name.partition("T")
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {clock[:2]}:{clock[2:4]}:{clock[4:6]}"
