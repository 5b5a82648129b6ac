"""The report: one file, nothing loaded from elsewhere, escaped texts, claims that follow the figures."""

import base64
import hashlib
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harr.evaluate.audit import Audit
from harr.evaluate.plays import plays_of
from harr.evaluate.rows import question_rows
from harr.evaluate.summary import Runs, Summary, summarise
from harr.report.page import write_report
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

CURVE = [{"step": s, "reward_mean": 0.1 * s, "zero_std_share": 0.5} for s in range(1, 5)]
FILTER = [{"id": "q", "reward_mean": 0.5, "reward_std": 0.5, "kept": True, "reason": "rollouts disagree"}]


def episodes(right: int, hostile: str = "Ada") -> list[Episode]:
    """Make thirty one-hop questions, the first ``right`` of them solved."""
    found = []
    for number in range(30):
        question = Question(f"q{number}", f"Who is {hostile} {number}?", ("Ada",), (f"gold{number}",))
        shown = Passage(f"gold{number}" if number < right else "other", f"{hostile} lives here.", hostile)
        hop = Hop(hostile, hostile, "FOUND")
        step = Step(Search(question, hostile), Retrieval((shown,)))
        found.append(Episode(question, (step,), Outcome("Ada" if number < right else hostile, (hop,))))
    return found


def runs(of: str = "Bob", **right: int) -> dict[str, Runs]:
    """Make one run of each arm, with this many questions solved."""
    return {arm: [question_rows(episodes(solved, of))] for arm, solved in right.items()}


def figures(rows: dict[str, Runs], **changes: Any) -> Summary:
    """Return these arms' figures from 200 draws."""
    return summarise(rows, resamples=200, seed=0, **changes)


def report(out: Path, frozen: int = 3, trained: int = 27, hostile: str = "Bob", seeds: int = 2, **changes: Any) -> str:
    played = {"frozen": episodes(frozen, hostile), "trained": episodes(trained, hostile)}
    rows: dict[str, Runs] = {"frozen": [question_rows(played["frozen"])]}
    rows["trained"] = [question_rows(played["trained"])] * seeds
    values: dict[str, Any] = {
        "summary": figures(rows),
        "curve": CURVE,
        "filter_rows": FILTER,
        "questions": plays_of(figures(rows), {arm: own[0] for arm, own in rows.items()}, played),
        "facts": {"Seed": "7", "Encoder": hostile, "Dataset": "people", "Training": "grpo; steps 4"},
        "links": {"Data Docs": "../gx/docs/index.html"},
    }
    write_report(out, **values | changes)
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of an ordinary run."""
    return report(tmp_path_factory.mktemp("plain") / "index.html")


def words(text: str) -> str:
    """Return the page's text without mark-up, style and scripts."""
    body = re.sub(r"<script.*?</script>", " ", text.split("</style>", 1)[1], flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).replace("&nbsp;", " ").split())


def test_the_first_sentence_states_the_gain_its_interval_n_and_seed(plain: str) -> None:
    text = words(plain)
    assert "Training beats frozen, the best arm without training: answer F1 90.0 % against 10.0 %, +80.0 [+" in text
    assert "What was trained A retriever, by grpo; steps 4 On what people, pipeline unknown; tested on 30" in text
    assert "24 better , 0 worse , 6 the same with trained than with frozen" in text
    assert "n = 30 test questions, p = 0.01;" in text  # 2 of 201
    assert "Intervals are over 2 seeds and all questions." in text and "of trained 2: 90.0 to 90.0 %" in text
    assert re.search(r"trained is ahead by .* frozen before training .* 10\.0 .* \+80\.0 \[\+.* p = 0\.01", text)


def test_one_run_has_no_p_and_no_gain_is_claimed_that_is_not_there(tmp_path: Path) -> None:
    text = words(report(tmp_path / "index.html", seeds=1)).split("Training Before")[0]
    assert (
        "This training run beats frozen, the best arm without training: answer F1 90.0 % against 10.0 %, +80.0 [+"
        in text
    )
    assert "It is one training run, seed 7; another seed may come out differently." in text
    assert "Trained arms have 1 run: no p values" in text and "p = " not in text and "p < " not in text
    behind = "Training stays behind frozen, the best arm without training: answer F1 10.0 % against 90.0 %, -80.0 ["
    assert behind in words(report(tmp_path / "index.html", 27, 3))
    same = "Training cannot be told apart from frozen, the best arm without training: answer F1 53.3 % against 50.0 %, +3.3 ["
    assert same in words(report(tmp_path / "index.html", 15, 16))


def test_validation_has_its_own_place(plain: str, tmp_path: Path) -> None:
    found = {"recall": 0.5, "questions": 30.0, "seconds": 2.0}
    curve = [{**row, "validation": found | {"recall": 0.6 if row["step"] == 2 else 0.5}} for row in CURVE]
    text = words(report(tmp_path / "index.html", curve=curve))
    assert "30 validation questions" in text and "was best after step 3, at 60.0 %" in text
    assert not re.search("On 30 validation questions", words(plain))


def test_an_audit_of_another_package_stands_in_a_table_with_what_it_holds_against_trained_in_red(
    plain: str, tmp_path: Path
) -> None:
    table = ({"habit": "idle", "share": "90.0 %"}, {"habit": "<b>", "share": "10.0 %"})
    audit = asdict(Audit({"idle": "it idles"}, title="Habits", says="Shares.", table=table, note="Of 30."))
    summary = figures(runs(frozen=3, trained=27)) | {"audits": {"mine:habits": audit, "mine:silent": asdict(Audit())}}
    page = report(tmp_path / "index.html", summary=summary)
    assert "Habits Shares. habit share idle 90.0 % &lt;b&gt; 10.0 % Of 30." in words(page)
    assert page.count('"rowheader" class=flag>idle') == 1 and page.count("class=flag") == plain.count("class=flag") + 1
    assert "#audit-1" in page and "#audit-" not in plain


@pytest.mark.fault(14)
def test_texts_are_escaped(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)><script>alert('x')</script>&\"\u2028"
    text = report(tmp_path / "index.html", hostile=hostile)
    assert text.count("<script") == text.count("</script") == 2 and "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 1  # the fact; the other texts are data
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert data["questions"][0]["text"] == f"Who is {hostile} 0?" and "\u2028" not in text.split('id="data">')[1]
    assert {title for _, title, _ in data["passages"]} == {hostile}


class Loads(HTMLParser):
    """Collects everything a browser would fetch, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)
        self.fetched += [
            value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "data") and tag != "a"
        ]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "br", "input"):
            assert self.open.pop() == tag


def test_the_page_is_whole_loads_nothing_and_runs_no_script_but_its_own(plain: str) -> None:
    page = Loads()
    page.feed(plain)
    assert page.open == []
    assert all(address.startswith("#") for address in page.fetched)
    assert not re.findall(r"@import|url\((?!#)", plain)
    assert set(re.findall(r"\w+://[^\"' ]*", plain)) <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert 'href="../gx/docs/index.html"' in plain
    script = re.findall(r"<script>(.*?)</script>", plain, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert len(script) == 1 and f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in plain
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script[0])
    assert not re.search(r"<[a-z][^>]* on[a-z]+=", plain.split("<script>")[0])
    figures = "".join(re.findall(r"<svg.*?</svg>", plain, flags=re.DOTALL))
    assert "var(--ink, #1c2530)" in figures and "var(--green, #00875f)" in figures
    assert not re.findall(r"(?<!, )(?:#1c2530|#00875f)", figures), "colours of the page, where it has any"


def test_a_run_without_training_or_baseline_still_reports(tmp_path: Path) -> None:
    rows = runs(bm25=9)
    questions = plays_of(figures(rows), {"bm25": rows["bm25"][0]}, {"bm25": episodes(9)})
    shown = {"questions": questions, "facts": {}}
    text = report(tmp_path / "index.html", summary=figures(rows), curve=[], filter_rows=[], **shown)
    assert "Arms compared by answer F1." in words(text)
    assert 'id="training"' not in text and 'id="questions"' in text
