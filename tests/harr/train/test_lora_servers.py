"""``train.vllm: adapter``: a LoRA goes to servers as files; what they wrote, and how likely it was, is trained."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from letters import letters_setup, nothing, save_letters
from lora_serving import Vllm, params, served

from harr.errors import ModelError, ParamsError, ServiceUnavailable
from harr.rag.setup import Setup
from harr.train import lora_servers
from harr.train.agent import train


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return letters_setup(tmp_path / "letters")


def test_two_servers_share_a_run_and_one_may_be_restarted(setup: Setup, tmp_path: Path) -> None:
    servers = [Vllm(setup.writer), Vllm(setup.writer, forgets_at=20)]
    with ExitStack() as stack:
        urls = [stack.enter_context(served(server)) for server in servers]
        history = train(params(*urls, steps=3), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert max(row["logprob_gap"] for row in history) < 1e-3, "also after two updates: the LoRA is the newest"
    assert all(row["is_ratio_mean"] == pytest.approx(1.0, abs=1e-2) for row in history)
    assert servers[0].loads == 3 < servers[1].loads
    assert all(len(server.asked) > 3 * 8 for server in servers)
    sent = servers[0].asked[0]
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"]) == (0.8, 1.0, -1, 0.0)
    assert (sent["logprobs"], sent["return_token_ids"], sent["include_stop_str_in_output"]) == (0, True, True)
    assert len({str(body["seed"]) for body in servers[0].asked}) > 24, "rows have random numbers of their own"
    assert (tmp_path / "out/adapter_model.safetensors").exists()


def test_the_same_run_draws_the_same_and_an_episode_has_the_servers_room(setup: Setup, tmp_path: Path) -> None:
    rows = []
    for name in "ab":
        server = Vllm(setup.writer)
        with served(server) as url:
            history = train(params(url), setup, tmp_path / name, tmp_path / f"work-{name}", nothing, 0)
        rows.append([row["reward_mean"] for row in history])
        assert max(len(body["prompt"]) + 6 for body in server.asked) <= 48
    assert rows[0] == pytest.approx(rows[1], abs=1e-6)


def test_a_server_with_other_weights_ends_the_run_and_the_step_is_not_kept(setup: Setup, tmp_path: Path) -> None:
    other = save_letters(tmp_path / "other", spread=0.9)
    with (
        served(Vllm(str(other))) as url,
        pytest.raises(ModelError, match=r"differ from the trainer's by \d\.\d+ nats a token, expected at most 0\.5"),
    ):
        train(params(url), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert not list((tmp_path / "work").rglob("state.json")) and not (tmp_path / "out").exists()


def test_a_server_that_is_not_there_or_takes_no_lora_is_one_line(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lora_servers, "DEADLINE", 0.1)
    with served(Vllm(setup.writer)) as url:
        gone = url
    with pytest.raises(ServiceUnavailable, match=r"connection failed, tried for 0\.1 s; .* train\.vllm_urls") as caught:
        train(params(gone), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert gone in str(caught.value) and "\n" not in str(caught.value)
    plain = Vllm(setup.writer)
    monkeypatch.setattr(plain, "answer", lambda path, body: (404, {"detail": "Not Found"}))
    with served(plain) as url, pytest.raises(ParamsError, match=r"HTTP 404 .*started as docs/serving\.md says"):
        train(params(url), setup, tmp_path / "out", tmp_path / "work", nothing, 0)
