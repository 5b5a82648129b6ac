"""The graded judge behind a real HTTP server: what is kept, what is counted, what is never told."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from serving import chat, serving

from harr.builders.pipeline import build_reward
from harr.errors import ParamsError, ServiceUnavailable
from harr.params import Params
from harr.rag.scoring.reward import Reward
from harr.train.record import term_figures
from harr.types import Episode, Outcome, Passage, Question, Retrieval, Search, Step
from tasks.paths import PLACES

ROOT = Path(__file__).parents[4]
GOOD = yaml.safe_load((ROOT / "params.yaml").read_text())
KEY = "sk-very-private"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return tmp_path


def reward(base_url: str, **changes: Any) -> Reward:
    judge = {"kind": "server", "base_url": "http://h", "model": "small", "deadline_seconds": 0.1} | changes
    params = Params.model_validate(GOOD | {"reward": {"terms": {"semantic": 1.0}, "judge": judge}})
    assert params.reward.judge
    there = params.reward.judge.model_copy(update={"base_url": base_url})  # params.yaml takes no password in it
    section = params.reward.model_copy(update={"judge": there})
    return build_reward(section, params.encoder, params.seed, PLACES)


def answered(*answers: str) -> list[Episode]:
    asked = [Question(f"q{number}", f"Who is {number}?", answers=("Ada",)) for number in range(len(answers))]
    return [Episode(q, (), Outcome(answer, graph=())) for q, answer in zip(asked, answers, strict=True)]


def half(body: dict[str, Any], number: int) -> tuple[int, Any]:
    return 200, chat('{"score": 0.5}')


def test_bug_14_a_failure_is_never_kept_and_a_verdict_is_kept_for_later_stages(place: Path) -> None:
    def broken(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return 500, {"error": {"message": f"no, {KEY}"}}

    def mumbling(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return 200, chat("fine" if "is 0?" in body["messages"][1]["content"] else '{"score": 0.5}')

    replies = [broken]
    with serving(lambda body, number: replies[0](body, number)) as served:
        with pytest.raises(ServiceUnavailable, match=r"reward\.judge at http.*HTTP 500") as caught:
            reward(served.base_url).score(answered("Ada"))
        assert KEY not in str(caught.value)
        replies[0] = mumbling
        second = reward(served.base_url)
        assert second.score(answered("Ada", "Ada"))["semantic"] == [None, 0.5]
        assert second.usage()["unreadable verdicts"] == 1.0
        replies[0], before = half, len(served.bodies)
        third = reward(served.base_url)
        assert third.score(answered("Ada", "Ada"))["semantic"] == [0.5, 0.5]
        assert len(served.bodies) == before + 1 and third.usage()["cached"] == 1.0
        assert served.bodies[-1]["temperature"] == 0.0
    (kept,) = (place / PLACES.completions).iterdir()
    assert kept.read_bytes().startswith(b"SQLite") and KEY.encode() not in kept.read_bytes() and KEY not in kept.name


def test_bug_8_keys_come_from_the_environment_and_answers_are_judged_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def slow(body: dict[str, Any], number: int) -> tuple[int, Any]:
        time.sleep(0.05)
        return half(body, number)

    with serving(slow) as served:
        reward(served.base_url, deadline_seconds=10, concurrency=4).score(answered(*"abcdefgh"))
    assert served.keys == {f"Bearer {KEY}"} and 2 <= served.peak <= 4
    assert KEY not in "".join(capsys.readouterr())
    written = [path.read_text() for path in (ROOT / "flows").glob("*.py")]
    options = [o for text in written for o in re.findall(r'^    (\w+): Annotated\[|"--([\w-]+)"', text, re.MULTILINE)]
    options = ["".join(pair) for pair in options]
    assert "dataset" in options and not [option for option in options if re.search("key|token$|secret", option)]


def test_bug_15_a_full_template_is_seen_and_nodes_can_be_charged() -> None:
    """Two right answers by graphs of one node and of three: the template's terms tell nothing, the price does."""
    question = Question("q", "Who?", answers=("Ada",))
    step = Step(Search(question, "Who?"), Retrieval((Passage("p", "Ada."),)))
    short, long = (Episode(question, (step,) * count, Outcome("Ada", turns=2, graph=())) for count in (1, 3))
    charged = Reward({"semantic": 0.5, "format": 0.25, "search_cost": 0.05})
    scores = charged.score([short, long])
    figures = term_figures(scores, charged.totals(scores))
    assert (figures["reward_format_mean"], figures["reward_format_std"], figures["reward_search_cost_std"]) == (1, 0, 1)
    assert charged.totals(scores) == [pytest.approx(0.7), pytest.approx(0.6)]


def test_an_answer_too_long_for_the_judge_has_no_verdict_and_is_judged_again_later() -> None:
    def short(body: dict[str, Any], number: int) -> tuple[int, Any]:
        refusal = {"message": "...", "code": "context_length_exceeded"}
        return (400, {"error": refusal}) if "is 0?" in body["messages"][1]["content"] else half(body, number)

    replies = [short]
    with serving(lambda body, number: replies[0](body, number)) as served:
        first = reward(served.base_url)
        assert first.score(answered("Ada", "Ada"))["semantic"] == [None, 0.5]
        assert (first.usage()["unreadable verdicts"], first.usage()["too_long"]) == (1.0, 1.0)
        replies[0] = half
        later = reward(served.base_url)
        assert later.score(answered("Ada", "Ada"))["semantic"] == [0.5, 0.5]
        assert (later.usage()["cached"], later.usage()["too_long"]) == (1.0, 0.0)


def test_a_judge_that_does_not_answer_ends_the_run_at_its_deadline() -> None:
    def late(body: dict[str, Any], number: int) -> tuple[int, Any]:
        time.sleep(0.5)
        return half(body, number)

    with serving(late) as served:
        slow = reward(served.base_url, timeout_seconds=0.1, deadline_seconds=0.1)
        with pytest.raises(ServiceUnavailable, match=r"no answer within 0\.1 s.*reward\.judge\.base_url"):
            slow.score(answered("Ada"))
    assert slow.usage()["timeouts"] == 1.0
    with serving(lambda body, number: (200, "<html>")) as served:
        address = served.base_url.replace("//", "//ada:private@")
        with pytest.raises(ParamsError, match=r"reward\.judge\.base_url must be an OpenAI") as caught:
            reward(address).score(answered("Ada"))
    assert "private" not in str(caught.value)


def test_a_judge_that_nothing_listens_for_is_one_line_after_its_deadline() -> None:
    with serving(half) as served:
        gone = served.base_url
    began = time.monotonic()
    with pytest.raises(
        ServiceUnavailable, match=r"^reward\.judge at http://127.*: connection failed, tried for"
    ) as told:
        reward(gone, deadline_seconds=0.5).score(answered("Ada"))
    assert "start the server, or mend reward.judge.base_url" in str(told.value) and "\n" not in str(told.value)
    assert time.monotonic() - began < 5
