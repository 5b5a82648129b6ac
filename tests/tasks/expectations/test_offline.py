"""Data Docs ask no other machine, say their status, and their first page leads to every check."""

from pathlib import Path

import pytest

from tasks.expectations.offline import make_offline

PAGE = """<html><head><link rel="stylesheet" href="https://cdn.example/a.css"><script src='https://cdn.example/a.js'>
</script><style>p { margin: 0 }</style></head><body><img class="x" src="https://cdn.example/logo.png" alt="logo">
<script>try { $(".modal").modal(); } catch (e) {}</script><script>let kept = 1;</script> / __none__ / today
<a href="https://greatexpectations.io">their site</a> Data asset: None<br> <b>Status:</b> Succeeded</body></html>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    checks = ("corpus/__none__/20261123T095221.402483Z/a1.html", "all/__none__/20261123T095300.000000Z/b.html")
    for name in (*(f"validations/{check}" for check in checks), "expectations/corpus.html"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(PAGE)
    make_offline(tmp_path)
    return tmp_path


def test_a_page_asks_no_other_machine_and_keeps_what_it_says(site: Path) -> None:
    for page in (path for path in site.rglob("*.html") if path.name != "index.html"):
        text = page.read_text()
        assert "cdn.example" not in text and "$(" not in text and "None" not in text and "__none__" not in text
        assert "let kept = 1;" in text and "Succeeded" in text and "https://greatexpectations.io" in text
        assert text.count("<style>") == 2, "the page's own, and one in place of those that were taken out"


def test_the_first_page_leads_to_every_check(site: Path) -> None:
    text = (site / "index.html").read_text()
    assert 'href="validations/corpus/__none__/20261123T095221.402483Z/a1.html"' in text
    assert "2026-11-23 09:52:21</a> succeeded" in text and "width=device-width" in text
    assert text.index(">corpus<") < text.index(">all<"), "in the order in which they were made"


def test_a_second_time_changes_nothing(site: Path) -> None:
    before = {path: path.read_bytes() for path in site.rglob("*.html")}
    make_offline(site)
    assert before == {path: path.read_bytes() for path in site.rglob("*.html")}
