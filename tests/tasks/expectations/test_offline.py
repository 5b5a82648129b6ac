"""Data Docs ask no other machine, say their status, and their first page leads to every check."""

from pathlib import Path

from harr.io.files import write_text
from tasks.expectations.offline import make_offline

PAGE = """<html><head><link rel="stylesheet" href="https://cdn.example/a.css"><script src='https://cdn.example/a.js'>
</script><style>p { margin: 0 }</style></head><body><img class="x" src="https://cdn.example/logo.png" alt="logo">
<script>try { $(".modal").modal(); } catch (e) {}</script><script>let kept = 1;</script> / __none__ / today
<a href="https://greatexpectations.io">their site</a> Data asset: None<br> <b>Status:</b> Succeeded</body></html>"""


def test_pages_ask_no_other_machine_and_the_first_leads_to_every_check(tmp_path: Path) -> None:
    checks = ("corpus/__none__/20261123T095221.402483Z/a1.html", "all/__none__/20261123T095300.000000Z/b.html")
    for name in (*(f"validations/{check}" for check in checks), "expectations/corpus.html"):
        write_text(tmp_path / name, PAGE)
    make_offline(tmp_path)
    before = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    index = before[tmp_path / "index.html"]
    for text in (text for path, text in before.items() if path.name != "index.html"):
        assert "cdn.example" not in text and "$(" not in text and "None" not in text and "__none__" not in text
        assert "let kept = 1;" in text and "Succeeded" in text and "https://greatexpectations.io" in text
        assert text.count("<style>") == 2, "the page's own, and one in place of those that were taken out"
    assert 'href="validations/corpus/__none__/20261123T095221.402483Z/a1.html"' in index
    assert "2026-11-23 09:52:21</a> succeeded" in index and "width=device-width" in index
    assert index.index(">corpus<") < index.index(">all<"), "in the order in which they were made"
    make_offline(tmp_path)
    assert before == {path: path.read_text() for path in tmp_path.rglob("*.html")}, "a second time changes nothing"
