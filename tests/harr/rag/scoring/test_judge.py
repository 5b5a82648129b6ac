"""The graded judge behind a real HTTP server: what is kept, what is counted, what is never printed."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from serving import chat, serving

from harr.builders.pipeline import build_reward
from harr.errors import ParamsError, ServiceUnavailable
from harr.params import Params
from harr.params.servers import ServerParams
from harr.rag.scoring.reward import Reward
from harr.types import Episode, Outcome, Question
from tasks.paths import PLACES

ROOT = Path(__file__).parents[4]
GOOD = yaml.safe_load((ROOT / "params.yaml").read_text())
KEY = "sk-very-private"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return tmp_path


JUDGE = ServerParams(name="judge", urls=("http://h",), deadline_seconds=0.1)


def reward(base_url: str, **changes: Any) -> Reward:
    judge = {"kind": "server", "server": {"urls": ["http://h"]}, "model": "small"} | changes
    params = Params.model_validate(GOOD | {"reward": {"terms": {"semantic": 1.0}, "judge": judge}})
    assert params.reward.judge
    there = params.reward.judge.model_copy(
        update={"server": JUDGE.model_copy(update={"urls": (base_url,)})}
    )  # params.yaml allows no password in it
    section = params.reward.model_copy(update={"judge": there})
    return build_reward(section, params.encoder, params.seed, PLACES)


def answered(*answers: str) -> list[Episode]:
    asked = [Question(f"q{number}", f"Who is {number}?", answers=("Ada",)) for number in range(len(answers))]
    return [Episode(q, (), Outcome(answer, graph=())) for q, answer in zip(asked, answers, strict=True)]


def half(body: dict[str, Any], number: int) -> tuple[int, Any]:
    return 200, chat('{"score": 0.5}')


@pytest.mark.fault(11)
def test_bug_14_a_failure_is_never_kept_and_a_verdict_is_kept_for_later_stages(place: Path) -> None:
    """Unreadable verdicts and answers too long for the judge are not kept, either."""
    refusal = {"error": {"message": "...", "code": "context_length_exceeded"}}
    odd = {"is 0?": (200, chat("fine")), "is 1?": (400, refusal)}

    def mumbling(body: dict[str, Any], number: int) -> tuple[int, Any]:
        asked = body["messages"][1]["content"]
        return next((reply for words, reply in odd.items() if words in asked), (200, chat('{"score": 0.5}')))

    replies = [lambda body, number: (500, {"error": {"message": f"no, {KEY}"}})]
    with serving(lambda body, number: replies[0](body, number)) as served:
        with pytest.raises(ServiceUnavailable, match=r"reward\.judge at http.*HTTP 500") as caught:
            reward(served.base_url).score(answered("Ada"))
        assert KEY not in str(caught.value)
        replies[0] = mumbling
        second = reward(served.base_url)
        assert second.score(answered(*["Ada"] * 3))["semantic"] == [None, None, 0.5]
        assert (second.usage()["unreadable verdicts"], second.usage()["too_long"]) == (2.0, 1.0)
        replies[0], before = half, len(served.bodies)
        third = reward(served.base_url)
        assert third.score(answered(*["Ada"] * 3))["semantic"] == [0.5] * 3
        assert len(served.bodies) == before + 2
        assert (third.usage()["cached"], third.usage()["too_long"]) == (1.0, 0.0)
        assert served.bodies[-1]["temperature"] == 0.0 and served.keys == {f"Bearer {KEY}"}
    (kept,) = (place / PLACES.completions).iterdir()
    assert kept.read_bytes().startswith(b"SQLite") and KEY.encode() not in kept.read_bytes() and KEY not in kept.name


def test_a_judge_that_does_not_answer_ends_the_run_at_its_deadline() -> None:
    with serving(lambda body, number: (200, "<html>")) as served:
        address = served.base_url.replace("//", "//ada:private@")
        with pytest.raises(ParamsError, match=r"servers\.judge\.urls must be an OpenAI") as refused:
            reward(address).score(answered("Ada"))
    assert "private" not in str(refused.value)
    line = r"^reward\.judge at http://127.*: connection failed, tried for.*start the server, or correct servers\.judge\.urls"
    with pytest.raises(ServiceUnavailable, match=line) as caught:  # the server is gone
        reward(served.base_url).score(answered("Ada"))
    assert "\n" not in str(caught.value)
