"""Agent runs that are stopped, collapse, break, or outgrow their model; and runs of two processes, as of one."""

import sys
from collections.abc import Generator as PyGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import check_alike, history, killed_hard_at, launch, leave_history
from letters import AGENT, OnePassage, letters_setup, nothing, save_letters, spell
from runs import go_on, same, timeless, weights
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from harr.errors import ParamsError, ServiceUnavailable
from harr.io import progress
from harr.io.files import read_json
from harr.params.loop import CheckpointParams, OptimizerParams
from harr.params.train import AgentParams
from harr.params.train_facts import LoraParams, ValidationParams
from harr.rag.generation.local_model import load_model
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.rag.validation import Validation, points
from harr.train import agent
from harr.train.agent import check_processes, train
from harr.types import Generate, Outcome, Question, Request, Retrieval, Search

NEVER = {"window": 2, "drop": 0.0}
PARAMS = AGENT.model_copy(
    update={"questions_per_step": 2, "group_size": 4, "checkpoints": CheckpointParams(every=5, window=2)}
)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return letters_setup(tmp_path / "letters")


def test_a_stopped_run_that_collapses_later_keeps_its_best_weights(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 7 is the best, and is saved because the run was stopped there; the reward falls after it resumes."""
    rewards = [0.5, 0.5, 0.6, 0.6, 0.9, 0.95, 0.99, 0.3, 0.1, 0.1, 0.05, 0.05]
    figures = agent.reward_figures
    monkeypatch.setattr(agent, "reward_figures", lambda *given: figures(*given) | {"reward_mean": rewards[given[-1]]})

    def stop(step: int, values: object) -> None:
        if step == 6:
            progress.ask_to_stop(lambda: sys.exit(143))

    with monkeypatch.context() as asked, pytest.raises(SystemExit):
        asked.setattr(progress._Stop, "leave", None)
        train(PARAMS, setup, tmp_path / "out", tmp_path / "work", stop, 0)
    (saved,) = (tmp_path / "work").glob("*/checkpoint-000007")
    best = weights(saved)
    history = train(PARAMS, setup, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert len(history) == 9 and same(best, weights(tmp_path / "out"))
    (last,) = (tmp_path / "work").glob("*/checkpoint-000009")
    assert not same(best, weights(last)), "the run did learn on"


@pytest.mark.fault(12)
def test_a_run_in_which_no_group_differs_stops(
    setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = replace(setup, reward=Reward({"letters:half": 1.0}))
    history = train(PARAMS, alike, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert [row["without_advantage"] for row in history] == [1.0] * PARAMS.checkpoints.window
    assert "train stopped after step 2: no group's rewards differed in the last 2 steps" in capsys.readouterr().out
    assert train(PARAMS, alike, tmp_path / "out", tmp_path / "work", nothing, 0) == history, "and stays stopped"


@pytest.mark.parametrize("lora", [None, LoraParams(rank=8, alpha=64)], ids=["full", "lora"])
def test_a_killed_run_of_several_passes_ends_with_the_same_weights(
    setup: Setup, tmp_path: Path, lora: LoraParams | None
) -> None:
    """GRPO that uses a batch more than once: what TRL keeps between two passes is rebuilt."""
    params = PARAMS.model_copy(
        update={
            "steps": 5,
            "checkpoints": CheckpointParams(every=2),
            "num_iterations": 3,
            "episodes_per_pass": 4,
            "lora": lora,
        }
    )

    def run(name: str, log: Any) -> list[dict[str, Any]]:
        assert not (tmp_path / name).exists() and progress._Stop.loops == 0
        return train(params, setup, tmp_path / name, tmp_path / f"w-{name}", log, 0)

    assert timeless(run("whole", nothing)) == timeless(go_on(lambda log: run("parts", log), 3))
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_validation_changes_nothing_and_chooses_the_weights(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that stops where a point cannot be played, and is then killed, has every point once."""
    logged: list[int] = []

    def log(step: int, values: Any) -> None:
        logged.extend([step] * ("validation.reward" in values))

    def fails(self: Validation, done: int, played: Any = Validation._validate) -> dict[str, float]:
        if done == 2:
            raise ServiceUnavailable("away")
        return played(self, done)

    params = PARAMS.model_copy(update={"steps": 5, "checkpoints": CheckpointParams(every=2, **NEVER)})
    watched = params.model_copy(update={"validation": ValidationParams(every=2)})
    asked = replace(setup, validation=[Question(f"v{n}", letter) for n, letter in enumerate("tyuiop")])
    plain = train(params, setup, tmp_path / "plain", tmp_path / "a", nothing, 0)
    whole = train(watched, asked, tmp_path / "whole", tmp_path / "b", log, 0)
    assert same(weights(tmp_path / "plain"), weights(tmp_path / "whole"))
    assert [row["loss"] for row in whole] == [row["loss"] for row in plain]
    found = points(whole)
    assert [point["step"] for point in found] == logged == [0, 2, 4, 5]
    assert len({point["reward"] for point in found}) > 1  # other weights play differently
    with monkeypatch.context() as broken, pytest.raises(ServiceUnavailable):
        broken.setattr(Validation, "_validate", fails)
        train(watched, asked, tmp_path / "parts", tmp_path / "c", nothing, 0)
    parts = go_on(lambda log: train(watched, asked, tmp_path / "parts", tmp_path / "c", log, 0), 3)
    assert timeless(points(parts)) == timeless(found)
    assert same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))

    scripted = {0: 0.95, 2: 0.9, 4: 0.7, 5: 0.6}
    monkeypatch.setattr(
        Validation, "_validate", lambda self, done: {"recall": scripted[done], "questions": 2.0, "seconds": 0.0}
    )
    best = watched.model_copy(update={"validation": ValidationParams(every=2, keep="best")})
    train(best, asked, tmp_path / "best", tmp_path / "d", nothing, 0)
    (saved,) = (tmp_path / "d").glob("*/checkpoint-000002")
    assert same(weights(saved), weights(tmp_path / "best"))
    assert not same(weights(tmp_path / "best"), weights(tmp_path / "whole"))
    known = read_json(tmp_path / "best/harr.json")
    assert known["kept_step"] == 2 and known["base_model"] == setup.language_model


def broken_in(steps: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let these steps' gradients overflow; return the log that notes the current step."""
    now = [0]

    def load(*given: Any, **settings: Any) -> tuple[Any, Any]:
        model, tokenizer = load_model(*given, **settings)
        model.model.norm.weight.register_hook(lambda grad: grad * float("inf") if now[0] in steps else grad)
        return model, tokenizer

    def log(step: int, row: object) -> None:
        now[0] = step + 1

    monkeypatch.setattr(agent, "load_model", load)
    return log


@pytest.mark.fault(12)
def test_a_gradient_that_is_not_finite_is_left_out_and_counted_and_three_in_a_row_end_the_run(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    three = PARAMS.model_copy(update={"steps": 3, "checkpoints": CheckpointParams(every=1, **NEVER)})
    history = train(three, setup, tmp_path / "out", tmp_path / "work", broken_in([1], monkeypatch), 0)
    assert [row["skipped_updates"] for row in history] == [0.0, 1.0, 0.0]
    assert history[1]["grad_norm"] == 0.0 < history[2]["grad_norm"]
    assert all(bool(weight.isfinite().all()) for weight in weights(tmp_path / "out").values())
    history = train(PARAMS, setup, tmp_path / "broken", tmp_path / "work", broken_in(range(12), monkeypatch), 0)
    assert len(history) == 3 and "gradient was not finite in 3 steps in a row" in capsys.readouterr().out
    assert same(weights(Path(setup.language_model)), weights(tmp_path / "broken")), "nothing was learnt"


def wordy(question: Question) -> PyGenerator[Request, Any, Outcome]:
    """Take two turns; a short question is followed by more text than the model can read."""
    first: str = yield Generate(prompt=question.text, stop=("s",))
    result = "b" * (40 if len(question.text) < 3 else 3)
    answer: str = yield Generate(prompt=f"{question.text}{first}{result}", stop=("t",))
    return Outcome(answer)


def test_an_episode_that_outgrows_learnt_positions_is_survived(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2's shape with room for 32 tokens: a second turn without room, a prompt too long by itself, and two that fit.

    Their batch is wider than 32; TRL must read every text at the positions at which it was sampled.
    """
    tokenizer = AutoTokenizer.from_pretrained(setup.language_model)
    shape = {"n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None, "attn_pdrop": 0.0}
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **shape, **ends)).save_pretrained(tmp_path / "gpt2")
    tokenizer.save_pretrained(tmp_path / "gpt2")
    seen: list[tuple[torch.Tensor, ...]] = []

    def watch(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if kwargs.get("fused_lm_head"):
            seen.append((kwargs["input_ids"], kwargs["attention_mask"], output.log_probs.detach()))

    def load(*given: Any, **settings: Any) -> tuple[Any, Any]:
        model, tokenizer = load_model(*given, **settings)
        model.register_forward_hook(watch, with_kwargs=True)
        return model, tokenizer

    monkeypatch.setattr(agent, "load_model", load)
    texts = ["q", "w" * 20, "e" * 60, "rrrr"]
    game = replace(
        setup,
        questions=[Question(f"q{number}", text) for number, text in enumerate(texts)],
        pipeline=wordy,
        language_model=str(tmp_path / "gpt2"),
    )
    # with loss dapo, episodes without advantage would not be read
    one = PARAMS.model_copy(update={"steps": 1, "questions_per_step": 4, "episodes_per_pass": 16, "loss": "grpo"})
    (row,) = train(one, game, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert row["without_room"] >= 4 + 2 * 4 and row["skipped_updates"] == 0.0
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "gpt2").eval()
    lengths = set()
    for ids, mask, found in (row for batch in seen for row in zip(*batch, strict=True)):
        text = ids[mask.bool()]
        with torch.no_grad():
            scores = model(text[None]).logits[0, :-1].log_softmax(-1).gather(-1, text[1:, None])[:, 0]
        own = found[mask[1:].bool()][-len(scores) :]  # the first token has none; those of the prompt are 0
        assert torch.allclose(own[own != 0], scores[own != 0], atol=1e-4)
        lengths.add(len(text))
    assert max(lengths) <= 32 and {32} < lengths and max(ids.shape[1] for ids, *_ in seen) > 32


class Leaves(OnePassage):
    """A corpus whose server is gone after ``calls`` calls."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        self.calls -= 1
        if self.calls < 0:
            raise ServiceUnavailable("Milvus at http://127.0.0.1:9 does not answer; start it")
        return super().retrieve(searches)


def test_a_source_that_goes_away_ends_the_run_in_a_line_and_costs_no_step(setup: Setup, tmp_path: Path) -> None:
    """An unreachable index is no observation: the run ends, keeps all its steps, and can resume there."""
    params = PARAMS.model_copy(update={"steps": 4, "checkpoints": CheckpointParams(**NEVER)})

    def run(name: str, calls: int) -> list[dict[str, Any]]:
        game = replace(setup, retriever=Leaves(calls))
        return train(params, game, tmp_path / name, tmp_path / f"w-{name}", nothing, 0)

    whole = run("whole", 4)
    assert whole[0]["searches_mean"] == 1.0 and whole[0]["told_tokens"] > 0
    with pytest.raises(ServiceUnavailable) as error:
        run("parts", 3)
    assert str(error.value) == "Milvus at http://127.0.0.1:9 does not answer; start it"
    assert not (tmp_path / "parts").exists()
    assert [path.name for path in (tmp_path / "w-parts").glob("*/checkpoint-*")] == ["checkpoint-000003"]
    assert timeless(run("parts", 1)) == timeless(whole), "one step was left"
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


SHARED = AgentParams(
    method="agent",
    steps=2,
    questions_per_step=3,  # a group is split between both processes
    group_size=4,
    optimizer=OptimizerParams(learning_rate=2e-2),
    kl_weight=1e-3,
    episodes_per_pass=3,
    max_tokens=6,
    validation=ValidationParams(every=1),
    checkpoints=CheckpointParams(every=1, **NEVER),
    lora=LoraParams(rank=8, alpha=64),
)


def learn(out: Path, kill_at: int = -1) -> None:
    """Train the letters of the current folder; every process leaves its history in ``out``."""
    reward = Reward({"letters:share_of_a": 1.0, "letters:variety": 0.1})
    questions = [Question(f"q{number}", text) for number, text in enumerate("qwert")]
    setup = Setup(questions, spell, OnePassage(), None, reward, "letters", language_model="letters")  # type: ignore[arg-type]
    setup = replace(setup, validation=[Question("v1", "y"), Question("v2", "u")])
    leave_history(out, train(SHARED, setup, out / "adapter", out / "work", killed_hard_at(kill_at), 0))


@pytest.mark.services
def test_two_processes_train_what_one_trains_and_resume_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_letters(Path("letters"), spread=0.5)
    learn(Path("one"))
    done = launch(__file__, "two", "killed@1")
    assert done.returncode != 0 and "exitcode  : -9" in done.stderr, done.stderr
    rows, expected = history(Path("two"), "0"), history(Path("one"), "alone")
    assert rows == history(Path("two"), "1"), "every figure is that of the whole step"
    assert len(rows) == SHARED.steps and rows[-1]["reward_std"] > 0
    check_alike(rows, expected, ("kl", "entropy"), 1e-4)  # TRL reports the mean over passes, and these differ
    one, two = weights(Path("one/adapter")), weights(Path("two/adapter"))
    apart = torch.cat([(one[name] - two[name]).abs().flatten() for name in one])
    assert apart.mean() < 1e-5

    assert not Path("killed/adapter").exists()
    done = launch(__file__, "killed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("resuming train at step 1/2") == 1, "the main process alone prints"
    assert history(Path("killed"), "1") == history(Path("two"), "0")
    assert same(two, weights(Path("killed/adapter")))


def test_what_processes_cannot_share_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_processes(SHARED)
    with pytest.raises(ParamsError, match=r"no whole passes of 4 in each of 2 processes; .* a divisor of 6"):
        check_processes(SHARED.model_copy(update={"episodes_per_pass": 4}))
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(ParamsError, match="12 episodes of a step cannot be dealt out to 5 processes"):
        check_processes(SHARED)
    for engine in ("FSDP", "DEEPSPEED"):
        monkeypatch.setenv(f"ACCELERATE_USE_{engine}", "true")
        with pytest.raises(ParamsError, match=f"for {engine}, but train.method agent needs the whole model"):
            check_processes(SHARED)
        monkeypatch.delenv(f"ACCELERATE_USE_{engine}")


if __name__ == "__main__":
    for word in sys.argv[1:]:
        out, _, step = word.partition("@")
        learn(Path(out), int(step or -1))
