"""LeReT's training by TRL: it prefers what was better, resumes bit for bit, and keeps the model after SFT."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from letters import OnePassage, save_letters
from peft import PeftModel
from safetensors.torch import load_file

from harr.builders.methods import METHODS
from harr.compute import trl
from harr.corpus.passages import write_questions
from harr.errors import CorpusError, DamagedFile, IndexMismatch, ModelError
from harr.io import progress
from harr.io.files import SUMS, read_json, read_jsonl, write_json
from harr.params.filter import PreferencesParams
from harr.params.train import LeReTParams
from harr.params.train_facts import LoraParams
from harr.rag.generation.llm_adapter import base_identity
from harr.rag.generation.local_model import LanguageModel, LocalGenerator, load_model
from harr.rag.pipelines import leret as program
from harr.rag.pipelines.leret import render, request
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.rag.validation import Validation, points
from harr.train import leret
from harr.types import Generate, Passage, Question, Retrieval

QUESTIONS = [f"{first}{second}?" for first in "qwer" for second in "tyu"]


def preference(number: int, split: str = "train") -> dict[str, Any]:
    """The query with the letter of the question is better than one without."""
    question = QUESTIONS[number]
    return {
        "id": f"q{number}/1",
        "question_id": f"q{number}",
        "hop": 1,
        "split": split,
        "prompt": render(question, ())[0],
        "responses": ["zz", "mm", question[0] * 2],
        "scores": [0.0, 0.5, 1.0],
        "pairs": [[1, 0], [2, 1]],
        "sft_target": question[0] * 2,
    }


def settings(**changes: Any) -> LeReTParams:
    """Learnt in seconds."""
    given = {
        "method": "leret",
        "sft_epochs": 6,
        "sft_batch": 4,
        "sft_learning_rate": 3e-3,
        "ipo_epochs": 3,
        "ipo_learning_rate": 3e-3,
        "warmup_steps": 2,
        "max_tokens": 4,
        "lora": None,
    }
    return LeReTParams(**{**given, **changes})


@pytest.fixture
def game(tmp_path: Path) -> Setup:
    """The letters model, ten prompts to learn and two that are held out."""
    folder = save_letters(tmp_path / "letters", spread=0.3, room=96, printable=True)
    data = tmp_path / "filtered"
    data.mkdir()
    rows = [preference(number, "train" if number < 10 else "held_out") for number in range(12)]
    (data / "preferences.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_json(data / "manifest.json", {"index": "index-1", "settings": {}})
    questions = [Question(f"q{number}", text) for number, text in enumerate(QUESTIONS)]
    pipeline = program.LeReT(1, template="bare")
    return Setup(questions, pipeline, OnePassage(), None, Reward({"recall": 1.0}), "game", "index-1", data, str(folder))


def nothing(step: int, values: object) -> None:
    """Log nowhere."""


def margin(folder: str, prompt: str, better: str, worse: str) -> float:
    """By how much more likely (nats) a model finds one query than another."""
    model, tokenizer = load_model(folder)
    context = tokenizer(prompt)["input_ids"]

    def logprob(query: str) -> float:
        ids = tokenizer(f" {query}\n")["input_ids"]
        logits = model(torch.tensor([context + ids])).logits[0, len(context) - 1 : -1].log_softmax(-1)
        return float(logits.gather(-1, torch.tensor(ids)[:, None]).sum().detach())

    return logprob(better) - logprob(worse)


@pytest.mark.parametrize("lora", [None, LoraParams(rank=8, alpha=64)], ids=["full", "lora"])
def test_better_queries_become_likelier(game: Setup, tmp_path: Path, lora: LoraParams | None) -> None:
    params = settings(lora=lora, sft_epochs=2)
    rows = METHODS["leret"].train(params, game, tmp_path / "out", tmp_path / "work", nothing, 0)
    sft, ipo = ([row for row in rows if row["phase"] == phase] for phase in (0.0, 1.0))
    assert len(sft) == 10 * 2 / 4 and len(ipo) == 20 * 3 / 4 and [row["step"] for row in rows] == list(range(len(rows)))
    assert sft[-1]["loss"] < sft[0]["loss"]
    assert {row["beta"] for row in ipo} == {0.05}, "as published, whatever the length"
    assert ipo[0]["loss"] == pytest.approx(100.0, rel=0.1), "before the first update nothing is gained: (0 - 10)^2"
    assert abs(ipo[0]["margin_nats"]) < 0.2 < ipo[-1]["margin_nats"]
    assert ipo[-1]["target_margin_nats"] == 10.0 and "held_out_accuracy" in ipo[-1]
    row = preference(0)
    found = [
        margin(name, row["prompt"], "qq", "mm")
        for name in (game.writer, str(tmp_path / "out/sft"), str(tmp_path / "out"))
    ]
    assert found[0] < found[1] < found[2]
    assert isinstance(load_model(str(tmp_path / "out"))[0], PeftModel) == (lora is not None)
    assert read_json(tmp_path / "out/harr.json")["base_model"] == game.writer
    assert not any(path.suffix in {".bin", ".pt", ".pth"} for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("lora", [None, LoraParams(rank=8, alpha=64)], ids=["full", "lora"])
def test_validation_changes_nothing_and_each_phase_keeps_its_best(
    game: Setup, tmp_path: Path, lora: LoraParams | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(place: str, setup: Setup, log: Any = nothing, **more: Any) -> list[dict[str, Any]]:
        params = settings(lora=lora, sft_epochs=2, ipo_epochs=1, **more)
        return METHODS["leret"].train(params, setup, tmp_path / place, tmp_path / f"{place}-work", log, 0)

    logged: list[int] = []

    def log(step: int, values: Any) -> None:
        logged.extend([step] * ("validation.recall" in values))

    asked = replace(game, validation=[Question(f"v{place}", text, (), ("p",)) for place, text in enumerate(QUESTIONS)])
    plain, watched = run("plain", game), run("watched", asked, log, validate_every=3)
    assert [row["loss"] for row in plain] == [row["loss"] for row in watched]
    for part in (".", "sft"):
        one, other = (
            load_file(next((tmp_path / place / part).glob("*.safetensors"))) for place in ("plain", "watched")
        )
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert [point["step"] for point in points(watched)] == logged == [0, 3, 5, 8, 10]
    assert {point["questions"] for point in points(watched)} == {12.0}

    scripted = {0: 0.0, 3: 0.9, 5: 0.4}
    monkeypatch.setattr(
        Validation, "_played", lambda self, done: {"recall": scripted[done], "questions": 2.0, "seconds": 0.0}
    )
    run("best", asked, validate_every=3, keep="best")
    (saved,) = (tmp_path / "best-work").glob("*/0/ipo-run/checkpoint-000003")
    kept, out = load_file(saved / "weights.safetensors"), load_file(next((tmp_path / "best").glob("*.safetensors")))
    names = {name: name.replace(".default.", ".") for name in kept}
    assert all(torch.equal(kept[name], out[own]) for name, own in names.items() if own in out)
    assert set(names.values()) & out.keys() and read_json(tmp_path / "best/harr.json")["kept_step"] == 8


def test_the_adapter_goes_with_the_model_beside_it(game: Setup, tmp_path: Path) -> None:
    METHODS["leret"].train(
        settings(lora=LoraParams(rank=2, alpha=4), sft_epochs=1, ipo_epochs=1),
        game,
        tmp_path / "a",
        tmp_path / "w",
        nothing,
        0,
    )
    (tmp_path / "a").rename(tmp_path / "moved")
    known = read_json(tmp_path / "moved/harr.json")
    assert known["beside"] == "sft" and known["base"] == base_identity(str(tmp_path / "moved/sft")) != base_identity(
        game.writer
    )
    written = LocalGenerator(str(tmp_path / "moved"), temperature=0.0, max_tokens=4, batch_size=1, seed=0)
    assert written.complete([Generate(prompt="q")])
    save_letters(tmp_path / "moved/sft", spread=0.1, room=96, printable=True)
    with pytest.raises(DamagedFile, match=r"sft/.* is damaged"):
        load_model(str(tmp_path / "moved"))
    for folder in ("moved", "moved/sft"):
        (tmp_path / folder / SUMS).unlink(missing_ok=True)
    with pytest.raises(ModelError, match="was trained on another model"):
        load_model(str(tmp_path / "moved"))


@pytest.mark.parametrize("lora", [None, LoraParams(rank=4, alpha=8)], ids=["full", "lora"])
@pytest.mark.parametrize("phase", ["SFT", "IPO"])
def test_a_killed_run_ends_with_the_same_weights(
    game: Setup, tmp_path: Path, lora: LoraParams | None, phase: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(trl, "SAVE_EVERY", 3)
    params = settings(lora=lora, sft_epochs=2, ipo_epochs=1)
    seen: list[Any] = []

    def kill(step: int, row: Any) -> None:
        seen.append(step)
        if step == 4 and len(seen) > (5 if phase == "IPO" else 0):
            raise KeyboardInterrupt

    whole = METHODS["leret"].train(params, game, tmp_path / "whole", tmp_path / "a", nothing, 0)
    with pytest.raises(KeyboardInterrupt) as killed:  # keeps all that the training held
        METHODS["leret"].train(params, game, tmp_path / "parts", tmp_path / "b", kill, 0)
    assert not (tmp_path / "parts").exists()
    assert killed.traceback and progress._Stop.loops == 0
    again: list[int] = []
    parts = METHODS["leret"].train(
        params, game, tmp_path / "parts", tmp_path / "b", lambda step, row: again.append(step), 0
    )
    assert again[0] == 3
    assert [{**row, "seconds": 0.0} for row in whole] == [{**row, "seconds": 0.0} for row in parts]
    for path in (tmp_path / "whole").rglob("*.safetensors"):
        one, two = load_file(path), load_file(tmp_path / "parts" / path.relative_to(tmp_path / "whole"))
        assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("template", ["bare", "plain", "chatml", "chat"])
def test_a_prompt_is_learnt_as_the_tokens_that_are_played(game: Setup, template: str) -> None:
    writer = LanguageModel(*load_model(game.writer), name=game.writer)
    writer.room = 10_000
    rows = [preference(number) for number in range(3)]
    played = [writer.encode(request(row["prompt"], template)) for row in rows]
    for (ids, own), prompt, row in zip(leret.targets(writer, rows, template), played, rows, strict=True):
        assert ids[: len(prompt)] == prompt and own == [False] * len(prompt) + [True] * (len(ids) - len(prompt))
        query = row["sft_target"]
        assert writer.decode(ids[len(prompt) :]) == (f" {query}\n" if template in ("bare", "plain") else query)
        assert (ids[-1] in writer.ends) == (template in ("chatml", "chat"))
    pairs = leret.pairs(writer, rows, template)
    assert [pair["prompt_ids"] for pair in pairs] == [prompt for prompt in played for _ in range(2)]
    assert all(pair["chosen_ids"] != pair["rejected_ids"] for pair in pairs)


def test_what_does_not_fit_is_refused_and_never_cut(game: Setup) -> None:
    writer = LanguageModel(*load_model(game.writer), name=game.writer)
    row = {**preference(0), "prompt": "x" * 93}
    with pytest.raises(
        CorpusError, match=r"prompt q0/1 and its query have 97 tokens, the model reads 96; lower pipeline"
    ):
        leret.targets(writer, [row], "bare")


def test_another_index_or_no_preferences_is_one_clear_line(game: Setup, tmp_path: Path) -> None:
    assert game.data
    write_json(game.data / "manifest.json", {"index": "index-2"})
    with pytest.raises(IndexMismatch, match="was sampled with index index-2, but this one is index-1"):
        METHODS["leret"].train(settings(), game, tmp_path / "out", tmp_path / "work", nothing, 0)
    write_json(game.data / "manifest.json", {"index": "index-1"})
    (game.data / "preferences.jsonl").write_text(json.dumps(preference(0, "held_out")) + "\n")
    with pytest.raises(CorpusError, match="holds no preferences to learn"):
        METHODS["leret"].train(settings(), game, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert not (tmp_path / "out").exists()


class Even:
    """Finds the gold where a query begins with every other character."""

    def retrieve(self, searches: Any) -> list[Retrieval]:
        """The gold or something else."""
        names = ["gold" if ord(search.query[0]) % 2 else "other" for search in searches]
        return [Retrieval((Passage(name, "text", "Title"),)) for name in names]


@pytest.fixture
def again(game: Setup, tmp_path: Path) -> Setup:
    """A game whose questions can be tried anew, fewer than the first prompts took."""
    assert game.data
    folder = save_letters(tmp_path / "roomy", spread=0.3, room=256, printable=True)
    tried = PreferencesParams(pool=60, validation=20, candidates=4, prompts=2, temperature=1.0)
    made = tried.model_dump() | {"target": 0, "batch_size": 4}
    write_json(game.data / "manifest.json", {"index": "index-1", "settings": made, "seed": 0, "hops": 1})
    shown = [{"question": "q?", "context": [], "query": query} for query in ("qq", "zz")]
    sets = [{"seed": 0, "ap": 1.0, "chosen": True, "demonstrations": [one]} for one in shown]
    write_json(game.data / "prompts.json", {"seed": 0, "accepted": 2, "zero_shot": 0.5, "sets": sets})
    questions = [Question(f"q{number}", text, gold_ids=("gold",)) for number, text in enumerate(QUESTIONS)]
    write_questions(questions[10:], game.data / "held_out.jsonl")
    return replace(game, questions=questions[:10], retriever=Even(), writer=str(folder))


TWICE = settings(iterations=2, lora=LoraParams(rank=2, alpha=4), sft_epochs=1, ipo_epochs=1)


def test_where_nothing_differs_any_more_the_first_model_is_kept(again: Setup, tmp_path: Path, capsys: Any) -> None:
    once = TWICE.model_copy(update={"iterations": 1})
    METHODS["leret"].train(once, again, tmp_path / "once", tmp_path / "a", nothing, 0)
    rows = METHODS["leret"].train(
        TWICE, replace(again, retriever=OnePassage()), tmp_path / "twice", tmp_path / "b", nothing, 0
    )
    assert {row["phase"] for row in rows} == {0.0, 1.0}
    assert "iteration 2: no preference was found: at all" in capsys.readouterr().out
    for path in (tmp_path / "once").rglob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / "twice" / path.relative_to(tmp_path / "once")).read_bytes()


def test_what_a_second_iteration_needs_is_looked_for_before_the_first(again: Setup, tmp_path: Path) -> None:
    assert again.data
    (again.data / "held_out.jsonl").unlink()
    with pytest.raises(CorpusError, match=r"held_out\.jsonl is missing; train\.iterations above 1 samples again by it"):
        METHODS["leret"].train(TWICE, again, tmp_path / "out", tmp_path / "work", nothing, 0)
    assert not (tmp_path / "work").exists()


def test_the_second_iteration_learns_from_what_the_first_one_wrote(again: Setup, tmp_path: Path) -> None:
    """It samples with the merged model, and a run that was killed between goes on to the same weights."""
    params = TWICE
    rows = METHODS["leret"].train(params, again, tmp_path / "whole", tmp_path / "a", nothing, 0)
    assert {row["phase"] for row in rows} == {0.0, 1.0, 2.0, 3.0}
    (second,) = (tmp_path / "a").glob("*/1/data/preferences.jsonl")
    split = {
        name: {row["question_id"] for row in read_jsonl(second) if row["split"] == name}
        for name in ("train", "held_out")
    }
    assert split["train"] and not split["train"] & {f"q{number}" for number in (10, 11)}
    assert not split["held_out"] & {f"q{number}" for number in range(10)}
    assert load_model(str(tmp_path / "whole"))

    def kill(step: int, row: Any) -> None:
        if "beta" not in row and (list((tmp_path / "b").glob("*/1/data"))):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        METHODS["leret"].train(params, again, tmp_path / "parts", tmp_path / "b", kill, 0)
    METHODS["leret"].train(params, again, tmp_path / "parts", tmp_path / "b", nothing, 0)
    for path in (tmp_path / "whole").rglob("*.safetensors"):
        one, two = load_file(path), load_file(tmp_path / "parts" / path.relative_to(tmp_path / "whole"))
        assert all(torch.equal(one[name], two[name]) for name in one)
