"""LeReT's training by TRL: it prefers whole, better queries, resumes bit for bit, and keeps the model after SFT."""

import json
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings as examples, strategies as st
from letters import OnePassage, logprobs, nothing, save_letters
from peft import PeftModel
from preferred import QUESTIONS, preference, preferred_game, quick_leret
from runs import same, timeless, weights

from harr.builders.methods import METHODS
from harr.compute import trl
from harr.corpus.passages import write_questions
from harr.errors import CorpusError, DamagedFile, IndexMismatch, ModelError, ParamsError
from harr.io import progress
from harr.io.files import SUMS, read_json, read_jsonl, write_json
from harr.params.filter import PreferencesParams
from harr.params.train import LeReTParams
from harr.params.train_facts import LoraParams, ValidationParams
from harr.rag.generation.adapter import base_identity
from harr.rag.generation.local_model import LanguageModel, LocalGenerator, load_model
from harr.rag.pipelines import leret as program
from harr.rag.pipelines.leret import query_of, render, request
from harr.rag.setup import Setup
from harr.rag.validation import Validation, points
from harr.train import leret
from harr.train.leret import check_processes
from harr.types import Generate, Passage, Question, Retrieval

LORA = LoraParams(rank=4, alpha=16)


@pytest.fixture
def game(tmp_path: Path) -> Setup:
    """Ten prompts to learn and two held out."""
    return preferred_game(tmp_path)


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(game: Setup, tmp_path: Path) -> Run:
    """A function that trains into a named folder."""

    def train(name: str, params: LeReTParams, log: Any = nothing, setup: Setup = game) -> list[dict[str, Any]]:
        assert not (tmp_path / name).exists() and progress._Stop.loops == 0
        return METHODS["leret"].train(params, setup, tmp_path / name, tmp_path / f"{name}-work", log, 0)

    return train


def margin(folder: str, prompt: str, better: str, worse: str) -> float:
    """Return how much more likely (nats) a model finds one query than another."""
    model, tokenizer = load_model(folder)
    ids = [tokenizer(text)["input_ids"] for text in (prompt, f" {better}\n", f" {worse}\n")]
    return sum(logprobs(model, ids[0], ids[1])) - sum(logprobs(model, ids[0], ids[2]))


@pytest.mark.parametrize("lora", [None, LoraParams(rank=8, alpha=64)], ids=["full", "lora"])
def test_better_queries_become_likelier(game: Setup, run: Run, tmp_path: Path, lora: LoraParams | None) -> None:
    rows = run("out", quick_leret(lora=lora, sft_epochs=2))
    sft, ipo = ([row for row in rows if row["phase"] == phase] for phase in (0.0, 1.0))
    assert len(sft) == 10 * 2 / 4 and len(ipo) == 20 * 3 / 4 and [row["step"] for row in rows] == list(range(len(rows)))
    assert sft[-1]["loss"] < sft[0]["loss"]
    assert {row["beta"] for row in ipo} == {0.05}, "as published, whatever the length"
    assert ipo[0]["loss"] == pytest.approx(100.0, rel=0.1), "before the first update nothing is gained: (0 - 10)^2"
    assert abs(ipo[0]["margin_nats"]) < 0.2 < ipo[-1]["margin_nats"]
    assert ipo[-1]["target_margin_nats"] == 10.0 and "held_out_accuracy" in ipo[-1]
    models = (game.language_model, str(tmp_path / "out/sft"), str(tmp_path / "out"))
    before, imitated, preferred = (margin(model, preference(0)["prompt"], "qq", "mm") for model in models)
    assert before < imitated < preferred
    assert isinstance(load_model(str(tmp_path / "out"))[0], PeftModel) == (lora is not None)
    assert read_json(tmp_path / "out/harr.json")["base_model"] == game.language_model
    assert not any(path.suffix in {".bin", ".pt", ".pth"} for path in tmp_path.rglob("*"))


def test_validation_changes_nothing_and_each_phase_keeps_its_best(
    game: Setup, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = quick_leret(lora=LORA, sft_epochs=2, ipo_epochs=1)
    watched = params.model_copy(update={"validation": ValidationParams(every=3)})
    logged: list[int] = []

    def log(step: int, values: Any) -> None:
        logged.extend([step] * ("validation.recall" in values))

    asked = replace(game, validation=[Question(f"v{place}", text, (), ("p",)) for place, text in enumerate(QUESTIONS)])
    plain, found = run("plain", params), run("watched", watched, log, asked)
    assert [row["loss"] for row in plain] == [row["loss"] for row in found]
    assert same(weights(tmp_path / "plain"), weights(tmp_path / "watched"))
    assert [point["step"] for point in points(found)] == logged == [0, 3, 5, 8, 10]
    assert {point["questions"] for point in points(found)} == {12.0}

    scripted = {0: 0.0, 3: 0.9, 5: 0.4}
    monkeypatch.setattr(
        Validation, "_validate", lambda self, done: {"recall": scripted[done], "questions": 2.0, "seconds": 0.0}
    )
    run("best", watched.model_copy(update={"validation": ValidationParams(every=3, keep="best")}), setup=asked)
    (saved,) = (tmp_path / "best-work").glob("*/0/ipo-run/checkpoint-000003")
    assert same(weights(saved), weights(tmp_path / "best")), "of the second phase"
    assert read_json(tmp_path / "best/harr.json")["kept_step"] == 8


def test_the_adapter_goes_with_the_model_beside_it(game: Setup, run: Run, tmp_path: Path) -> None:
    run("a", quick_leret(lora=LORA, sft_epochs=1, ipo_epochs=1))
    moved = (tmp_path / "a").rename(tmp_path / "moved")
    known, sft_model = read_json(moved / "harr.json"), str(moved / "sft")
    assert known["beside"] == "sft" and known["base"] == base_identity(sft_model) != base_identity(game.language_model)
    written = LocalGenerator(str(moved), temperature=0.0, max_tokens=4, batch_size=1, seed=0)
    assert written.complete([Generate(prompt="q")])
    save_letters(moved / "sft", spread=0.1, room=96, printable=True)
    with pytest.raises(DamagedFile, match=r"sft/.* is damaged"):
        load_model(str(moved))
    for folder in (moved, moved / "sft"):
        (folder / SUMS).unlink(missing_ok=True)
    with pytest.raises(ModelError, match="was trained on another model"):
        load_model(str(moved))


@pytest.mark.parametrize(("phase", "lora"), [("SFT", None), ("IPO", LORA)])
def test_a_killed_run_ends_with_the_same_weights(
    run: Run, tmp_path: Path, phase: str, lora: LoraParams | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trl, "SAVE_EVERY", 3)
    params = quick_leret(lora=lora, sft_epochs=2, ipo_epochs=1)
    seen, again = list[int](), list[int]()

    def kill(step: int, row: Any) -> None:
        seen.append(step)
        if seen.count(4) == ("SFT", "IPO").index(phase) + 1:
            raise KeyboardInterrupt

    whole = run("whole", params)
    with pytest.raises(KeyboardInterrupt):
        run("parts", params, kill)
    parts = run("parts", params, lambda step, row: again.append(step))
    assert again[0] == 3
    assert timeless(whole) == timeless(parts)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


@pytest.mark.fault(38)
def test_another_index_or_no_preferences_is_one_clear_line(game: Setup, run: Run, tmp_path: Path) -> None:
    assert game.data
    write_json(game.data / "manifest.json", {"index": "index-2"})
    with pytest.raises(IndexMismatch, match="was sampled with index index-2, but this one is index-1"):
        run("out", quick_leret())
    write_json(game.data / "manifest.json", {"index": "index-1"})
    (game.data / "preferences.jsonl").write_text(json.dumps(preference(0, "held_out")) + "\n")
    with pytest.raises(CorpusError, match="holds no preferences to learn"):
        run("out", quick_leret())
    assert not (tmp_path / "out").exists()


class Even:
    """Finds the gold if a query's first character has an odd code."""

    def retrieve(self, searches: Any) -> list[Retrieval]:
        names = ["gold" if ord(search.query[0]) % 2 else "other" for search in searches]
        return [Retrieval((Passage(name, "text", "Title"),)) for name in names]


@pytest.fixture
def again(game: Setup, tmp_path: Path) -> Setup:
    """A game with fewer questions to try again than the first prompts used."""
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
    return replace(game, questions=questions[:10], retriever=Even(), language_model=str(folder))


TWICE = quick_leret(iterations=2, lora=LORA, sft_epochs=1, ipo_epochs=1)


def test_where_nothing_differs_any_more_the_first_model_is_kept(
    again: Setup, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("once", TWICE.model_copy(update={"iterations": 1}), setup=again)
    rows = run("twice", TWICE, setup=replace(again, retriever=OnePassage()))
    assert {row["phase"] for row in rows} == {0.0, 1.0}
    assert "iteration 2: no preference was found: at all" in capsys.readouterr().out
    assert same(weights(tmp_path / "once"), weights(tmp_path / "twice"))


def test_what_a_second_iteration_needs_is_looked_for_before_the_first(again: Setup, run: Run, tmp_path: Path) -> None:
    assert again.data
    (again.data / "held_out.jsonl").unlink()
    with pytest.raises(CorpusError, match=r"held_out\.jsonl is missing; train\.iterations above 1 samples again by it"):
        run("out", TWICE, setup=again)
    assert not (tmp_path / "out-work").exists()


def test_the_second_iteration_learns_from_what_the_first_one_wrote(again: Setup, run: Run, tmp_path: Path) -> None:
    """It samples with the merged model; a run killed between iterations resumes to the same weights."""
    rows = run("whole", TWICE, setup=again)
    assert {row["phase"] for row in rows} == {0.0, 1.0, 2.0, 3.0}
    (second,) = (tmp_path / "whole-work").glob("*/1/data/preferences.jsonl")
    found = read_jsonl(second)
    split = {name: {row["question_id"] for row in found if row["split"] == name} for name in ("train", "held_out")}
    assert split["train"] and not split["train"] & {"q10", "q11"}
    assert not split["held_out"] & {f"q{number}" for number in range(10)}
    assert load_model(str(tmp_path / "whole"))

    def kill(step: int, row: Any) -> None:
        if "beta" not in row and (list((tmp_path / "parts-work").glob("*/1/data"))):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("parts", TWICE, kill, again)
    run("parts", TWICE, setup=again)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


TEXT = st.lists(st.text(string.printable, min_size=3, max_size=12), max_size=12).map(" ".join)
PASSAGES = st.lists(st.builds(Passage, st.just("p"), TEXT, TEXT), max_size=6)
QUERIES = st.lists(TEXT.map(query_of).filter(bool), min_size=2, max_size=4, unique=True)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """A model with a token for every character."""
    folder = save_letters(tmp_path_factory.mktemp("whole") / "letters", spread=0.3, printable=True)
    return LanguageModel(*load_model(str(folder)), name="letters")


@examples(max_examples=50, deadline=None)
@given(
    asked=TEXT,
    context=PASSAGES,
    queries=QUERIES,
    template=st.sampled_from(["bare", "plain", "chatml", "chat"]),
    limit=st.integers(0, 600),
    room=st.integers(100, 1500),
)
def test_no_query_is_cut_and_a_prompt_loses_its_last_passages_only(
    language_model: LanguageModel,
    asked: str,
    context: list[Passage],
    queries: list[str],
    template: str,
    limit: int,
    room: int,
) -> None:
    """Training uses the tokens that are played, each as it stands."""

    def text_of(ids: list[int]) -> str:
        return "".join(language_model.tokenizer.convert_ids_to_tokens(ids))

    own_fits = program.LeReT(
        2, template=template, fits=lambda text: len(language_model.tokenizer(text)["input_ids"]) <= limit
    )
    prompt = own_fits.prompt(Question("q", asked), context)[0]
    kept = sum(line.startswith("Doc ") for line in prompt.splitlines())
    assert prompt == render(asked, context[:kept])[0]
    assert kept == 0 or len(prompt) <= limit
    assert kept == len(context) or len(render(asked, context[: kept + 1])[0]) > limit

    last = len(queries) - 1
    row = {"id": "q/1", "prompt": prompt, "responses": queries, "pairs": [[last, 0]], "sft_target": queries[last]}
    read = language_model.render(request(prompt, template))
    line = template in ("bare", "plain")
    completions = [f" {query}\n" if line else f"{query}<eos>" for query in queries]
    tokens = len(read) + max(map(len, queries)) + (2 if line else 1)
    language_model.room = room
    if tokens > room:  # an error, rather than a cut
        with pytest.raises(
            CorpusError, match=rf"q/1 and its query have \d+ tokens, the model reads {room}; lower pipeline"
        ):
            leret.pairs(language_model, [row], template)
        return
    ((ids, own),) = leret.targets(language_model, [row], template)
    assert text_of(ids) == read + completions[last]
    assert text_of([one for one, learnt in zip(ids, own, strict=True) if learnt]) == completions[last]
    assert own == sorted(own)  # the prompt comes first
    (pair,) = leret.pairs(language_model, [row], template)
    found = [text_of(pair[name]) for name in ("prompt_ids", "chosen_ids", "rejected_ids")]
    assert found == [read, completions[last], completions[0]]
    language_model.room = 100_000
    assert pair["prompt_ids"] == language_model.encode(request(prompt, template))


SHARED = quick_leret(sft_epochs=1, ipo_epochs=1, ipo_batch=4, rows_per_pass=2, lora=LORA)


def test_what_processes_cannot_share_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_processes(SHARED)
    with pytest.raises(ParamsError, match=r"sft_batch 4 is no whole passes of 4 in each of 2 .* a divisor of 2"):
        check_processes(SHARED.model_copy(update={"rows_per_pass": 4}))
    with pytest.raises(ParamsError, match=r"train\.iterations above 1 samples again, in one process"):
        check_processes(SHARED.model_copy(update={"iterations": 2}))
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ParamsError, match="sft_batch 4 cannot be dealt out to 3 processes"):
        check_processes(SHARED)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ParamsError, match=r"for FSDP, but train\.method leret needs the whole model"):
        check_processes(SHARED)
