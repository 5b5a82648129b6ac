"""ServerGenerator against a real HTTP server on loopback."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from serving import chat, completion, running, send_json, serving

from harr.builders.generators import build_generator
from harr.errors import ParamsError, ServiceUnavailable
from harr.rag.generation.server import ServerGenerator
from harr.services import openai_client
from harr.types import Generate, TruncatedCompletion
from tasks.paths import PLACES
from tests.serving import asking

COUNTS = ("requests", "retries", "timeouts", "prompt_tokens", "completion_tokens", "too_long", "no_room", "no_text")
OPENAI = {
    "message": "This model's maximum context length is 4096 tokens. However, your messages resulted in 5012 tokens.",
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
}
VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested 5012 tokens (4900 in the messages, ...",
    "'max_tokens' or 'max_completion_tokens' is too large: 112. This model's maximum context length is 4096 tokens "
    "and your request has 4000 input tokens (112 > 4096 - 4000).",
    "You passed 4900 input tokens and requested 112 output tokens. However, the model's context length is only 4096 "
    "tokens, resulting in a maximum input length of 3984 tokens. (parameter=input_tokens, value=4900)",
    "The decoder prompt (length 4900) is longer than the maximum model length of 4096.",
    "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",  # 0.32, prompt of exactly its length
)
WORDS = [
    {"error": OPENAI},
    {"error": {"message": "Your input is too much.", "type": "x", "code": "context_length_exceeded"}},
    *({"error": {"message": said, "type": "BadRequestError", "param": None, "code": 400}} for said in VLLM),
    {"object": "error", "message": VLLM[0], "type": "BadRequestError", "param": None, "code": 400},
    {
        "object": "error",
        "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    },
]


def echo(body: dict[str, Any], number: int) -> tuple[int, Any]:
    return 200, chat("echo " + body["messages"][-1]["content"])


def generator(*urls: str, **changes: Any) -> ServerGenerator:
    values = {"deadline_seconds": 0.1, "timeout_seconds": 5.0, "concurrency": 4} | changes
    return ServerGenerator(asking(*urls, **values))


def ask(*texts: str) -> list[Generate]:
    return [Generate(({"role": "system", "content": "Be brief."}, {"role": "user", "content": text})) for text in texts]


def test_order_is_kept_and_concurrency_is_bounded() -> None:
    def uneven(body: dict[str, Any], number: int) -> tuple[int, Any]:
        time.sleep(0.05 if number % 2 else 0.01)
        return echo(body, number)

    texts = [str(number) for number in range(12)]
    with serving(uneven) as served:
        player = generator(served.base_url, concurrency=3, temperature=0.3, max_tokens=17)
        assert player.complete([]) == [] and not served.bodies
        assert player.complete(ask(*texts)) == [f"echo {text}" for text in texts]
    assert 2 <= served.peak <= 3
    sent = served.bodies[0]
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("small", 0.3, 17)
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}


def test_of_two_servers_the_less_loaded_is_asked_and_a_dead_one_is_named_and_left(capsys) -> None:
    def slow(body: dict[str, Any], number: int) -> tuple[int, Any]:
        time.sleep(0.05)
        return echo(body, number)

    texts = [str(number) for number in range(24)]
    with serving(slow) as first, serving(slow) as second:
        two = generator(first.base_url, second.base_url, deadline_seconds=20.0)
        assert two.complete(ask(*texts)) == [f"echo {text}" for text in texts]
        assert min(len(first.bodies), len(second.bodies)) >= 6 and max(first.peak, second.peak) <= 3
        gone = second.base_url
    with serving(slow) as first:
        one = generator(gone, first.base_url, deadline_seconds=20.0)
        assert one.complete(ask(*texts)) == [f"echo {text}" for text in texts]
        assert len(first.bodies) == len(texts)
        assert one.usage()["retries"] <= 4, "one address is tried by those under way, and then left alone"
    assert capsys.readouterr().err.count("does not answer; 1 others are asked meanwhile") == 1


def test_a_500_is_tried_again_until_the_deadline() -> None:
    def once_broken(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return (500, {"error": {"message": "warming up"}}) if number == 1 else echo(body, number)

    with serving(once_broken) as served:
        assert generator(served.base_url, deadline_seconds=10).complete(ask("hello")) == ["echo hello"]
    assert len(served.bodies) == 2
    with (
        serving(lambda body, number: (503, {"error": {"message": "out of\nmemory"}})) as served,
        pytest.raises(ServiceUnavailable, match=r"HTTP 503 .*out of memory.*tried for 0\.6 s") as caught,
    ):
        generator(served.base_url, deadline_seconds=0.6).complete(ask("hello"))
    assert len(served.bodies) >= 2
    assert served.base_url in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.fault(11)
def test_a_slow_server_is_left_at_the_deadline() -> None:
    over = threading.Event()

    def slow(body: dict[str, Any], number: int) -> tuple[int, Any]:
        over.wait(20)
        return echo(body, number)

    with serving(slow) as served:
        start = time.perf_counter()
        with pytest.raises(ServiceUnavailable, match=r"no answer within 0\.2 s"):
            generator(served.base_url, timeout_seconds=0.2).complete(ask("hello"))
        assert time.perf_counter() - start < 10
        over.set()


@pytest.mark.fault(11)
def test_an_unreachable_server_is_one_clear_line() -> None:
    with serving(echo) as served:
        address = served.base_url
    with pytest.raises(
        ServiceUnavailable, match=r"connection failed, tried for 0\.1 s \(.*refused\); start the server"
    ) as caught:
        generator(address, concurrency=1).complete(ask(*"abc"))
    assert address in str(caught.value) and "\n" not in str(caught.value)


def test_a_server_that_never_answered_is_given_seconds_and_one_that_did_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Once(BaseHTTPRequestHandler):  # HTTP/1.0: one connection per answer
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            send_json(self, 200, completion("yes"))

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr(openai_client, "FIRST_SECONDS", 0.2)
    with running(Once) as address:
        player = generator(address, deadline_seconds=3.0)
        assert player.complete([Generate(prompt="a")]) == ["yes"]
        absent = generator(address, deadline_seconds=300.0)
    began = time.perf_counter()
    with pytest.raises(ServiceUnavailable, match=r"tried for 0\.2 s"):
        absent.complete([Generate(prompt="a")])
    first = time.perf_counter() - began
    with pytest.raises(ServiceUnavailable, match=r"tried for 3 s"):
        player.complete([Generate(prompt="b")])
    assert first < 60 and time.perf_counter() - began - first > 1, "it may be restarted"


@pytest.mark.fault(11)
def test_a_prompt_that_is_too_long_is_data() -> None:
    def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
        long = re.search(r"long (\d+)", str(body))
        return (400, WORDS[int(long[1])]) if long else echo(body, number)

    count = len(WORDS)
    asked = [Generate(prompt=f"long {number}") for number in range(count)]
    asked += ask(*(f"long {number}" for number in range(count)), *(str(number) for number in range(2 * count + 1)))
    with serving(reply) as served:
        player = generator(served.base_url)
        found = player.complete(asked)
    assert found == [""] * 2 * count + [f"echo {number}" for number in range(2 * count + 1)]
    assert [isinstance(text, TruncatedCompletion) for text in found] == [text == "" for text in found]
    assert player.usage() == dict(zip(COUNTS, (len(asked), 0, 0, 0, 0, 2 * count, 0, 0), strict=True)), (
        "none asked twice"
    )


def test_other_refusals_end_the_stage() -> None:
    for status, words in (
        (400, "'max_tokens' must be at least 16; you sent: This model's maximum context length is 5"),
        (400, "max_tokens=5000 cannot be greater than max_model_len=4096."),
        (400, "The prompt is too long to be shown here"),
        (400, "max_tokens must be at least 16, got 5. (parameter=max_tokens, value=5)"),
        (404, OPENAI["message"]),
    ):
        refusal = {"error": {"message": words, "code": status}}
        message = rf"HTTP {status} .*{re.escape(words)}.*check servers\.llm\.urls, generator\.model \(small\)"
        with (
            serving(lambda body, number, sent=(status, refusal): sent) as served,
            pytest.raises(ParamsError, match=message),
        ):
            generator(served.base_url, concurrency=1).complete(ask(*map(str, range(50))))
        assert len(served.bodies) < 10, "after a failure nothing more is sent"


CHOICES = [{}, None, "text", {"message": None}, {"message": "hm"}, {"message": {"content": [1]}}]
OTHERS = ["<html>welcome</html>", b"{broken", {"detail": "fine"}, {"choices": []}]


@pytest.mark.fault(11)
def test_what_is_no_completion_is_one_line_and_an_empty_one_is_data() -> None:
    for answer in (*OTHERS, *({"choices": [choice]} for choice in CHOICES)):
        with serving(lambda body, number, answer=answer: (200, answer)) as served:
            for request in (*ask("a"), Generate(prompt="a")):
                message = r"the answer is no completion; servers\.llm\.urls must be"
                with pytest.raises(ParamsError, match=message) as caught:
                    generator(served.base_url).complete([request])
                assert "\n" not in str(caught.value), answer
    with serving(lambda body, number: (200, chat(None if number == 1 else "") | {"usage": {}})) as served:
        player = generator(served.base_url, concurrency=1)
        assert player.complete(ask("a", "b")) == ["", ""]
    assert player.usage() == dict(zip(COUNTS, (2, 0, 0, 0, 0, 0, 0, 0), strict=True)), "a usage without figures is none"


@pytest.mark.fault(11)
def test_a_reply_that_was_all_thought_is_counted() -> None:
    """A model may think up to its limit: content is null, and only the tokens distinguish it from a terse one."""
    thought = chat(None) | {"usage": {"prompt_tokens": 9, "completion_tokens": 64}}
    terse = chat("") | {"usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    with serving(lambda body, number: (200, thought if number == 1 else terse)) as served:
        player = generator(served.base_url, concurrency=1)
        assert player.complete(ask("a", "b")) == ["", ""]
    assert (player.usage()["no_text"], player.usage()["completion_tokens"]) == (1.0, 65.0)


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (200, {"error": {"message": "model overloaded", "code": 503}}, r"no completion; it says .*model overloaded"),
        (
            422,
            {"detail": [{"loc": ["body", "seed"], "msg": "not permitted"}]},
            r"HTTP 422 \(.*seed.*not permitted.*\); check",
        ),
    ],
)
def test_what_a_server_says_of_a_failure_is_reported(status: int, answer: dict[str, Any], message: str) -> None:
    with serving(lambda body, number: (status, answer)) as served, pytest.raises(ParamsError, match=message):
        generator(served.base_url).complete(ask("a"))


def test_the_extra_body_is_sent_and_is_part_of_what_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bodies: tuple[dict[str, Any], ...] = ({}, {"chat_template_kwargs": {"enable_thinking": False}})

    def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
        text = f"{'prompt' in body} {body.get('chat_template_kwargs')}"
        return 200, completion(text) if "prompt" in body else chat(text)

    with serving(reply) as served:
        for extra in (*bodies, *bodies):
            section = asking(served.base_url, extra_body=extra)
            generator = build_generator(section, 0, PLACES)
            assert generator is not None
            kwargs = extra.get("chat_template_kwargs")
            assert generator.complete([*ask("a"), Generate(prompt="a")]) == [f"False {kwargs}", f"True {kwargs}"]
    assert len(served.bodies) == 4, "asked once with each body"


@pytest.mark.fault(30)
def test_the_key_comes_from_the_environment_and_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARR_TEST_KEY", "sk-very-secret")
    with (
        serving(lambda body, number: (401, {"error": {"message": "bad key sk-very-secret"}})) as served,
        pytest.raises(ParamsError, match="environment variable HARR_TEST_KEY") as caught,
    ):
        generator(served.base_url, key_variable="HARR_TEST_KEY").complete(ask("a"))
    assert served.keys == {"Bearer sk-very-secret"} and "sk-very-secret" not in str(caught.value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(echo) as served:
        assert generator(served.base_url).complete(ask("a")) == ["echo a"], "an unset key is no obstacle"
    assert served.keys == {"Bearer no-key"}


def test_raw_text_goes_to_completions_with_stop_strings_and_seed() -> None:
    def text(body: dict[str, Any], number: int) -> tuple[int, Any]:
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        cut = "length" if body["prompt"] == "once" else "stop"
        return 200, completion("so " + body["prompt"], cut) | {"usage": usage}

    with serving(text) as served:
        section = asking(served.base_url, max_tokens=2)
        player = ServerGenerator(section, seed=7)
        requests = [Generate(prompt="once", stop=("</search>",)), Generate(prompt="twice", stop=("</search>",))]
        found = player.complete([*requests, requests[0]])
    assert found == ["so once", "so twice", "so once"]
    assert [isinstance(reply, TruncatedCompletion) for reply in found] == [True, False, True], "a limit is reported"
    assert len(served.bodies) == 2, "an equal request is asked once"
    assert (served.bodies[0]["stop"], served.bodies[0]["seed"]) == (["</search>"], 7)
    assert player.usage() == dict(zip(COUNTS, (2, 0, 0, 6, 4, 0, 0, 0), strict=True))
