"""The report in a real browser: nothing is wider than the screen, the table filters, two arms open side by side."""

import html
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browsing import chromium

from harr.evaluate.plays import plays_of
from harr.evaluate.rows import question_rows
from harr.evaluate.summary import summarise
from harr.report.page import write_report
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

pytestmark = pytest.mark.soak
ARMS = {"bm25": 90, "frozen": 40, "history": 20, "hybrid": 100, "trained": 150}
COUNT = 300
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
CHROMIUM = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
PROBE = """<!doctype html><body style="margin:0">
<iframe id=page src="{url}" style="border:0;width:{width}px;height:800px"></iframe><pre id=out></pre><script>
document.getElementById("page").onload = (event) => {{
  const inside = event.target.contentDocument, wide = [...inside.querySelectorAll("body *")].filter((one) =>
    !one.closest(".skip, thead") && one.getBoundingClientRect().right > {width} + 1);
  const labels = wide.slice(0, 9).map((one) => `${{one.tagName}}.${{one.getAttribute("class")}}`);
  document.getElementById("out").textContent = JSON.stringify(labels) + inside.documentElement.scrollWidth +
    (inside.documentElement.scrollWidth <= {width} ? " fits" : " too wide");
}};
</script>"""


def played(right: int) -> list[Episode]:
    """Make two-hop questions with ten passages each; the first ``right`` are solved, and the first is hostile."""
    found = []
    for number in range(COUNT):
        words = f"Where did guardian number {number} of the historian live?" if number else f"Where? {HOSTILE}"
        question = Question(f"q{number}", words, ("Ada",), (f"gold{number}", f"gold{number}b"), kind=f"k{number % 3}")
        gold = "" if number < right else "not-"
        seen = [Passage(f"{gold}gold{number}", HOSTILE if not number else "She lived there. " * 40, "A" * 60)]
        seen += [Passage(f"p{(number + n) % 400}", "Words of another passage. " * 25, f"Title {n}") for n in range(9)]
        steps = tuple(Step(Search(question, f"who {hop}"), Retrieval(tuple(seen))) for hop in range(2))
        hops = tuple(Hop(f"who {hop}", "unbroken" * 30, "FOUND") for hop in range(2))
        found.append(Episode(question, steps, Outcome("Ada" if number < right else "Bob", hops)))
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report like the quick start's."""
    games = {arm: played(right) for arm, right in ARMS.items()}
    rows = {arm: question_rows(own) for arm, own in games.items()}
    figures = {"entropy": 2.0, "kl": 0.1, "clip_share": 0.05, "grad_norm": 3.0, "loss": 0.4, "zero_std_share": 0.3}
    curve: list[dict[str, Any]] = [
        {"step": n, "phase": float(n > 20), "seconds": 2.0, "reward_mean": n / 64}
        | {name: value / (1 + n / 9) for name, value in figures.items()}
        for n in range(64)
    ]
    out = tmp_path_factory.mktemp("report") / "index.html"
    summary = summarise({arm: [own] for arm, own in rows.items()}, resamples=100, seed=0)
    write_report(
        out,
        summary=summary,
        curve=curve,
        filter_rows=[{"id": "q", "reward_mean": 0.5, "reward_std": 0.5, "kept": True, "reason": "rollouts disagree"}],
        questions=plays_of(summary, rows, games),
        facts={"Dataset": "people", "Training": "grpo; steps 64", "Seed": "0", "Index identity": "f" * 64},
        links={"Checks of corpus": "../gx/index.html"},
    )
    return out


def look(*flags: str) -> str:
    """Return the browser's output, without a network."""
    command = [chromium(), *CHROMIUM, *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout


def dom(page: Path, state: str = "") -> str:
    return look("--virtual-time-budget=5000", "--dump-dom", page.as_uri() + state)


@pytest.mark.parametrize("width", [1000, 390])
@pytest.mark.parametrize("state", ["", "#q?open=q1"])
def test_nothing_is_wider_than_the_screen(width: int, state: str, page: Path) -> None:
    probe = page.with_name("probe.html")
    probe.write_text(PROBE.format(url=html.escape(page.name + state), width=width), encoding="utf-8")
    flags = ("--allow-file-access-from-files", "--window-size=1400,1000", "--virtual-time-budget=8000", "--dump-dom")
    assert f'<pre id="out">[]{width} fits</pre>' in look(*flags, probe.as_uri())


def test_search_and_filters_leave_the_questions_asked_for(page: Path) -> None:
    def ids(text: str) -> list[str]:
        return re.findall(r'<tr data-id="(.*?)"', text)

    text = dom(page).split('id="browser">')[1]
    assert "300 of 300 questions" in text and ids(text) == [f"q{n}" for n in range(20)]
    assert ids(dom(page, "#q?find=number+123+historian")) == ["q123"]
    better = dom(page, "#q?show=better&kind=k1&sort=gain")
    assert "37 of 300 questions" in better and ids(better)[0] == "q40"
    assert "0 of 300 questions" in dom(page, "#q?show=worse")
    assert "20 of 300 questions" in dom(page, "#q?a=frozen&b=history&show=worse")


def test_a_question_opens_with_two_arms_side_by_side(page: Path) -> None:
    text = dom(page, "#q?a=frozen&b=trained&open=q60").split('id="browser">')[1]
    assert '<tr data-id="q60"' in text and 'aria-expanded="true"' in text
    left, right = text.split("<script")[0].split('<section class="play">')[1:]
    assert "<span>frozen</span>" in left and "✓ gold" not in left and "<b>Bob</b>" in left
    assert "<span>trained</span>" in right and right.count("✓ gold") == 2 and "<b>Ada</b>" in right
    assert "gold passages: " in text and "gold60b" in text


def test_questions_without_answers_show_the_titles_of_their_gold(page: Path, tmp_path: Path) -> None:
    questions = re.sub(r'"gold":\["Ada"\]', '"gold":[]', page.read_text(encoding="utf-8"))
    (tmp_path / "retrieval.html").write_text(questions, encoding="utf-8")
    text = dom(tmp_path / "retrieval.html", "#q?find=number+7+").split('id="browser">')[1]
    assert '<th scope="col">gold passages</th>' in text
    assert re.findall(r'data-label="gold passages">(.*?)<', text)[0] == f"{'A' * 60} / gold7b"


def test_texts_of_passages_stay_texts(page: Path) -> None:
    text = dom(page, "#q?open=q0")
    assert "<title>harr report: people</title>" in text and "<img" not in text
    assert text.count("&lt;img src=x onerror=") > 3
