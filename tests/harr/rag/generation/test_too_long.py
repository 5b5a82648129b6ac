"""Prompts longer than a server's model reads, in a whole game: they are data unless they are the rule."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from letters import OnePassage
from serving import completion, serving

from harr.errors import ParamsError
from harr.rag.generation.cache import CachedGenerator
from harr.rag.generation.server import ServerGenerator
from harr.rag.pipelines.search_r1 import search_r1
from harr.rag.rollout import play
from harr.rag.scoring.terms import answer_f1
from harr.types import Episode, Question
from tests.serving import asking


def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
    """Answer as a model that cannot read a prompt with the word long."""
    refusal = {"message": "This model's maximum context length is 4096 tokens.", "code": "context_length_exceeded"}
    return (400, {"error": refusal}) if "long" in body["prompt"] else written("<answer>Ada</answer>")


def written(text: str, reason: str = "stop", tokens: int = 0) -> tuple[int, Any]:
    usage = {"prompt_tokens": 4090, "completion_tokens": tokens, "total_tokens": 4090 + tokens}
    return 200, completion(text, reason) | ({"usage": usage} if tokens else {})


def remembering(base_url: str, path: Path) -> CachedGenerator:
    section = asking(base_url, deadline_seconds=0.1, concurrency=4)
    return CachedGenerator(ServerGenerator(section), path / "known.sqlite")


def played(generator: CachedGenerator, long: int, of: int) -> Sequence[Episode]:
    """Play questions, the first ``long`` of which are too long; each may take three turns."""
    texts = [f"Who is {'long' if number < long else 'it'} {number}?" for number in range(of)]
    questions = [Question(f"q{number}", text, ("Ada",)) for number, text in enumerate(texts)]
    return play(questions, partial(search_r1, max_searches=2), OnePassage(), generator)


@pytest.mark.fault(11)
def test_they_score_nothing_and_are_counted_and_asked_again_later(tmp_path: Path) -> None:
    with serving(reply) as served:
        first = remembering(served.base_url, tmp_path)
        episodes = played(first, 4, of=8)
        assert [answer_f1(episode) for episode in episodes] == [0.0] * 4 + [1.0] * 4
        assert [episode.outcome.malformed for episode in episodes] == [3] * 4 + [0] * 4
        assert first.usage()["too_long"] == 4 * 3 and first.usage()["requests"] == 4 * 3 + 4
        # A later stage finds the others cached: its server sees only long prompts, yet they are not the rule.
        later = remembering(served.base_url, tmp_path)
        assert [answer_f1(episode) for episode in played(later, 4, of=8)] == [0.0] * 4 + [1.0] * 4
        assert later.usage() == first.usage() | {"requests": 12.0, "cached": 4.0}
    with serving(lambda body, number: written("<answer>Ada</answer>")) as served:  # now with a longer context
        longer = remembering(served.base_url, tmp_path)
        assert [answer_f1(episode) for episode in played(longer, 4, of=8)] == [1.0] * 8
        assert longer.usage()["requests"] == 4


@pytest.mark.fault(11)
def test_where_they_are_the_rule_the_stage_ends_in_a_line_and_keeps_the_others(tmp_path: Path) -> None:
    with serving(reply) as served:
        with pytest.raises(ParamsError) as caught:
            played(remembering(served.base_url, tmp_path), 5, of=8)
        said = str(caught.value)
        assert said.startswith(f"generator at {served.base_url}: HTTP 400 (Error code: 400 - ") and "\n" not in said
        assert "); 5 of 8 prompts leave no room to answer; serve the model with a longer context, or lower" in said
        again = remembering(served.base_url, tmp_path)
        with pytest.raises(ParamsError, match="5 of 8 prompts leave"):
            played(again, 5, of=8)
        assert again.usage()["cached"] == 3.0
        few = remembering(served.base_url, tmp_path / "few")
        assert [episode.outcome.answer for episode in played(few, 7, of=7)] == [""] * 7, "a few are no rule"
        with pytest.raises(ParamsError, match="8 of 8 prompts leave"):
            played(few, 1, of=1)


@pytest.mark.fault(11)
def test_an_answer_cut_for_want_of_room_is_asked_again_later(tmp_path: Path) -> None:
    """vLLM 0.32 silently lowers max_tokens if the prompt leaves less: only its token count shows it."""
    cut = written("<answer>A", "length", 6)
    with serving(lambda body, number: cut if "long" in body["prompt"] else written("<answer>Ada</answer>")) as served:
        first = remembering(served.base_url, tmp_path)
        assert answer_f1(played(first, 1, of=4)[0]) == 0.0
        assert (first.usage()["no_room"], first.usage()["too_long"]) == (1.0, 0.0)
        with pytest.raises(ParamsError, match=r"room for 6 of 512 tokens after 4090; \d of 8 prompts leave no room"):
            played(remembering(served.base_url, tmp_path), 5, of=8)
    with serving(lambda body, number: written("<answer>Ada</answer>")) as served:  # now with a longer context
        longer = remembering(served.base_url, tmp_path)
        assert [answer_f1(episode) for episode in played(longer, 1, of=4)] == [1.0] * 4
        assert longer.usage()["requests"] == 1 and longer.usage()["cached"] == 3
