"""The report: one file, nothing loaded from elsewhere, texts escaped, claims that follow the figures."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harr.evaluate.summary import Runs, Summary, question_rows, summarise
from harr.rag.scoring.reward import Reward
from harr.report.examples import trajectories
from harr.report.page import write_report
from harr.train.record import term_figures
from harr.types import Episode, Hop, Outcome, Passage, Question, Retrieval, Search, Step

CURVE = [{"step": s, "reward_mean": 0.1 * s, "zero_std_share": 0.5} for s in range(1, 5)]
FILTER = [{"id": "q", "reward_mean": 0.5, "reward_std": 0.5, "kept": True, "reason": "rollouts disagree"}]


def episodes(right: int, hostile: str = "Ada") -> list[Episode]:
    """Thirty one-hop questions, the first ``right`` of them solved."""
    found = []
    for number in range(30):
        question = Question(f"q{number}", f"Who is {hostile} {number}?", ("Ada",), (f"gold{number}",))
        shown = Passage(f"gold{number}" if number < right else "other", f"{hostile} lives here.", hostile)
        hop = Hop(hostile, hostile, "FOUND")
        step = Step(Search(question, hostile), Retrieval((shown,)))
        found.append(Episode(question, (step,), Outcome("Ada" if number < right else hostile, (hop,))))
    return found


def figures(rows: dict[str, Runs], **changes: Any) -> Summary:
    """Figures of these arms, of 200 draws."""
    return summarise(rows, resamples=200, seed=0, **changes)


def report(out: Path, frozen: int = 3, full: int = 27, hostile: str = "Bob", seeds: int = 2, **changes: Any) -> str:
    played = {"frozen": episodes(frozen, hostile), "full": episodes(full, hostile)}
    rows: dict[str, Runs] = {"frozen": [question_rows(played["frozen"])]}
    rows["full"] = [question_rows(played["full"])] * seeds
    values: dict[str, Any] = {
        "summary": figures(rows),
        "curve": CURVE,
        "filter_rows": FILTER,
        "trajectories": trajectories(played),
        "facts": {"Seed": "7", "Encoder": hostile},
        "links": {"Data Docs": "../gx/docs/index.html"},
    }
    write_report(out, **values | changes)
    return out.read_text(encoding="utf-8")


def words(text: str) -> str:
    """The page's text without mark-up."""
    return " ".join(re.sub(r"<[^>]+>", " ", text.split("</style>", 1)[1]).replace("&nbsp;", " ").split())


def test_the_first_sentence_states_the_gain_its_interval_n_and_seed(tmp_path: Path) -> None:
    text = words(report(tmp_path / "index.html"))
    assert "Training raised answer F1 from 10.0 % to 90.0 %: +80.0 [+" in text
    assert "n = 30 test questions, p = 0.01;" in text  # 2 of 201
    assert "Intervals are over 2 seeds and all questions." in text and "of full 2: 90.0 to 90.0 %" in text
    assert re.search(
        r"full against every other arm on the same questions: points of answer F1.*frozen \+80\.0 \[", text
    )


def test_what_one_run_shows_is_said_of_that_run_and_without_p(tmp_path: Path) -> None:
    text = words(report(tmp_path / "index.html", seeds=1)).split("Training Before")[0]
    assert "This training run raised answer F1 from 10.0 % to 90.0 %: +80.0 [+" in text
    assert "It is one training run, seed 7, and what is said of training is said of this run." in text
    assert "1 run, no p value" in text and "p = " not in text and "p < " not in text


def test_the_best_untrained_arm_stands_beside_the_claim_and_the_kinds_below(tmp_path: Path) -> None:
    sides = {"frozen": 3, "bm25": 25, "bm25_oracle_query": 30, "full": 27}
    rows: dict[str, Runs] = {arm: [question_rows(episodes(right, "Bob"))] for arm, right in sides.items()}
    rows["full"] = list(rows["full"]) * 2
    for by_seed in rows.values():
        for run in by_seed:
            for place, row in enumerate(run):
                row["kind"] = "bridge" if place % 2 else "comparison"
    text = words(report(tmp_path / "index.html", summary=figures(rows)))
    assert "Against the best arm without training, bm25 (83.3 %): +6.7 [" in text
    assert "best_by_kind takes for each kind of question the untrained arm that does best on it" in text
    assert "they and the p values hold for all 4 comparisons at once (min-P)." in text
    assert "answer F1 by kind of question" in text and "comparison n = 15" in text


def test_settings_lead_one_by_one_and_their_mixture_claims_nothing(tmp_path: Path) -> None:
    rows: dict[str, Runs] = {arm: [question_rows(episodes(n, "Bob"))] for arm, n in {"frozen": 3, "full": 27}.items()}
    for by_seed in rows.values():
        for place, row in enumerate(by_seed[0]):
            row["setting"] = "hotpotqa distractor" if place < 20 else "musique"
    page = report(tmp_path / "index.html", summary=figures(rows))
    text = words(page)
    assert "Arms compared, by data set and setting." in text and "raised" not in text
    assert re.findall(r"<h3>(.*?)</h3>", page)[:2] == ["hotpotqa distractor", "musique"]
    assert text.count("full against every other arm") == 2 and "90.0" not in text.split("Training Before")[0]


def test_a_hidden_part_that_costs_little_is_said_to_be_hardly_used(tmp_path: Path) -> None:
    figures = {"mean": 0.85, "low": 0.7, "high": 0.95, "n": 30, "cost": 0.05, "cost_low": -0.05, "cost_high": 0.15}
    worth = {"mean": 0.1, "low": 0.0, "high": 0.2, "n": 30, "cost": 0.8, "cost_low": 0.65, "cost_high": 0.9}
    parts = {"question": {"answer_f1": figures}, "history": {"answer_f1": worth}}
    text = words(report(tmp_path / "index.html", occlusion=parts))
    assert "full without the question 85.0 [70.0, 95.0] +5.0 [-5.0, +15.0] it hardly uses the question" in text
    assert "full without the history 10.0 [0.0, 20.0] +80.0 [+65.0, +90.0] it reads the history" in text
    assert "full without" not in words(report(tmp_path / "index.html"))


def test_alarms_stand_in_a_table_and_the_swap_below(tmp_path: Path) -> None:
    one = {"n": 30, "before": 0.1, "before_n": 30, "paid": 0.25, "examples": ["q1"]}
    found = {
        "no_search": {**one, "share": 0.9, "least": 0.6, "named": True},
        "broken_call": {**one, "share": 0.1, "least": -0.1, "named": False},
    }
    swap = {"own": 0.8, "swapped": 0.75, "fall": 0.05, "low": -0.01, "high": 0.11, "n": 50.0}
    rows = {arm: [question_rows(episodes(right))] for arm, right in (("frozen", 3), ("full", 27))}
    summary = figures(rows) | {"audit": {"exploits": found, "named": {}, "swap": swap}}
    page = report(tmp_path / "index.html", summary=summary)
    text = words(page)
    assert "no_search nothing is searched for 90.0 % 30 10.0 % 30 +60.0 +0.250" in text
    assert page.count("<td class=flag>90.0 %") == 1 and "<td>10.0 %</td>" in page
    assert "falls from 80.0 to 75.0, by +5.0 [-1.0, +11.0] points (n = 50). The answers do not depend on" in text
    untold = summary | {"audit": {"exploits": found, "swap": {"untold": "the pipeline gives no answers"}}}
    assert "not asked: the pipeline gives no answers" in words(report(tmp_path / "index.html", summary=untold))
    assert "Alarms" not in words(report(tmp_path / "index.html"))


def test_the_page_says_when_validation_was_best(tmp_path: Path) -> None:
    assert "validation questions" not in report(tmp_path / "index.html")
    found = {"recall": 0.5, "questions": 30.0, "seconds": 2.0}
    rows = [{**row, "validation": found | {"recall": 0.6 if row["step"] == 2 else 0.5}} for row in CURVE]
    text = report(tmp_path / "index.html", curve=rows)
    assert "30 validation questions" in text and "was best after step 3, at 60.0 %" in text


def test_a_run_that_tells_its_reward_terms_shows_their_curves_and_spread(tmp_path: Path) -> None:
    plain = report(tmp_path / "index.html")
    rows = [{**row, **term_figures({"recall": [0.0, 0.1 * row["step"]]}, [0.0, 1.0])} for row in CURVE]
    text = report(tmp_path / "index.html", curve=rows)
    assert "Reward while training, by term (n = 4 steps)" in text and "Spread of the reward over episodes" in text
    assert re.search(r"fit: .*, R² = 1\.00", text) and "by term" not in plain


def test_a_language_model_is_compared_with_its_warm_start_and_the_reward_stands_there(tmp_path: Path) -> None:
    played = {arm: episodes(n, "Bob") for arm, n in {"base": 0, "warmstart": 3, "full": 27}.items()}
    rows: dict[str, Runs] = {
        arm: [question_rows(side, [{"reward": 2.0 * (episode.answer == "Ada")} for episode in side])]
        for arm, side in played.items()
    }
    summary = figures(rows, baseline="warmstart")
    text = words(report(tmp_path / "index.html", summary=summary))
    assert "a language model that learns from the answer" in text
    assert "points against its warm start." in text and "frozen" not in text.split("Trajectories")[0]
    assert re.search(r"full 1\.800 \[\d\.\d+, \d\.\d+\] \+1\.600 \[", text)
    assert re.search(r"base is the language model before any training\.", text)


def test_a_page_says_that_there_was_no_judge_and_where_the_reward_changed(tmp_path: Path) -> None:
    played = {"frozen": episodes(3), "full": episodes(27)}
    terms = Reward({"semantic": 1.0})
    rows: dict[str, Runs] = {arm: [question_rows(side, terms.means(side))] for arm, side in played.items()}
    curve = [{**row, "phase": float(row["step"] > 2)} for row in CURVE]
    page = report(tmp_path / "index.html", summary=figures(rows), curve=curve)
    assert "semantic (answer F1, no judge)" in words(page) and "graded by the judge" not in page
    assert page.count("other terms or questions") == 1
    assert "other terms or questions" not in report(tmp_path / "index.html")


@pytest.mark.parametrize(
    ("frozen", "full", "claim"),
    [
        (27, 3, "Training lowered answer F1 from 90.0 % to 10.0 %: -80.0 ["),
        (15, 16, "Training did not measurably change answer F1 (50.0 % to 53.3 %): +3.3 ["),
    ],
)
def test_the_first_sentence_claims_no_gain_that_is_not_there(
    frozen: int, full: int, claim: str, tmp_path: Path
) -> None:
    assert claim in words(report(tmp_path / "index.html", frozen, full))


def test_texts_are_escaped(tmp_path: Path) -> None:
    text = report(tmp_path / "index.html", hostile="<script>alert('x')</script>&\"")
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(") > 20


def test_the_best_paid_come_with_their_audits_the_doubtful_first(tmp_path: Path) -> None:
    played = [
        {
            **{"id": f"q{n}", "question": f"Who is <b>{n}</b>?", "answer": "", "gold_answers": ["Ada", "A. B."]},
            **{"searches": 3.0, "reward": 1.0 if n < 12 else 2.0, "repeated_queries": 0.0, "answer_in_query": 0.0},
        }
        for n in range(13)
    ]
    played[5]["repeated_queries"], played[7]["answer_in_query"] = 1 / 3, 1.0
    del played[12]["repeated_queries"], played[12]["answer_in_query"]  # it never searched
    page = report(tmp_path / "index.html", played=played)
    text = words(page).split("Was it earned?")[1].split("Trajectories")[0].replace("\u2013", "-")
    assert re.findall(r"Who is &lt;b&gt;(\d+)&lt;/b&gt;", text) == ["12", "7", "5", "0", "1", "2", "3", "4", "6", "8"]
    assert "2.000 Who is &lt;b&gt;12&lt;/b&gt;? - Ada / A. B. 3 - -" in text
    assert "1.000 Who is &lt;b&gt;7&lt;/b&gt;? - Ada / A. B. 3 0 % yes" in text
    assert "1.000 Who is &lt;b&gt;5&lt;/b&gt;? - Ada / A. B. 3 33 % no" in text
    assert page.count("<td class=flag>") == 2 and 'href="#paid"' in page
    tags = Loads()
    tags.feed(page)
    assert tags.open == []
    picked = [{k: v for k, v in row.items() if k not in ("repeated_queries", "answer_in_query")} for row in played]
    assert 'id="paid"' not in report(tmp_path / "index.html", played=picked) + report(tmp_path / "index.html")


def test_more_repeated_queries_are_no_improvement(tmp_path: Path) -> None:
    sides = {"frozen": episodes(3), "full": episodes(3)}
    rows: dict[str, Runs] = {arm: [question_rows(side)] for arm, side in sides.items()}
    for row in rows["full"][0]:
        row["repeated_queries"] = 0.5
    page = report(tmp_path / "index.html", summary=figures(rows))
    assert "queries asked again" in words(page)
    assert '<small class="down">+50.0 [+50.0, +50.0]' in page and '<small class="up">' not in page


class Loads(HTMLParser):
    """Collects everything a browser would fetch, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.fetched += [
            value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "data") and tag != "a"
        ]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("meta", "br"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    text = report(tmp_path / "index.html")
    page = Loads()
    page.feed(text)
    assert page.open == []
    assert all(address.startswith("#") for address in page.fetched)
    assert not re.findall(r"@import|url\((?!#)", text)
    assert text.count("<svg") == 4
    assert 'href="../gx/docs/index.html"' in text


def test_figures_take_the_colours_of_the_page(tmp_path: Path) -> None:
    figures = "".join(re.findall(r"<svg.*?</svg>", report(tmp_path / "index.html"), flags=re.DOTALL))
    assert "var(--ink)" in figures and "var(--green)" in figures
    assert not re.findall(r"#1c2530|#00875f", figures)


def test_gold_is_marked_and_every_kind_counted(tmp_path: Path) -> None:
    text = report(tmp_path / "index.html")
    assert text.count('<span class="title gold">Bob</span>') == 3  # three gained questions, gold found by full only
    assert (
        "24 questions were right only after training, 0 questions were right only before training, "
        "3 questions were right with both, 3 questions were wrong with both."
    ) in words(text)


def test_a_run_without_training_or_baseline_still_reports(tmp_path: Path) -> None:
    rows: dict[str, Runs] = {"bm25": [question_rows(episodes(9))]}
    text = report(
        tmp_path / "index.html",
        summary=figures(rows),
        curve=[],
        filter_rows=[],
        trajectories=trajectories({"bm25": episodes(9)}),
        facts={},
    )
    assert "Arms compared by answer F1." in words(text)
    assert text.count("<svg") == 2 and 'id="training"' not in text
