"""Queries are tried hop by hop: what is kept, what survives a kill, and what is told of bad input."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serving import serving
from styled import Styled, Words

from harr.corpus.passages import read_questions
from harr.errors import CorpusError, IndexMismatch, NoPreference, ServiceUnavailable
from harr.generator.traces import Reader, open_world
from harr.io import progress
from harr.io.files import SUMS, check_sums, finish, read_json, read_jsonl
from harr.params.filter import PreferencesParams
from harr.params.generator import ServerParams
from harr.preferences import collect, few_shot
from harr.preferences.few_shot import chosen_prompts, hop_metrics, read_demonstrations
from harr.preferences.pairs import documents_of
from harr.rag.generation.server import ServerSamplers
from harr.rag.pipelines.leret import LeReT
from harr.rag.rollout import play
from harr.rag.scoring.reward import Reward
from harr.rag.setup import Setup
from harr.types import Generate, Passage, Question, Retrieval, Search

SMALL = PreferencesParams(pool=8, validation=4, candidates=6, prompts=3, held_out=0.3)
FILES = (
    "preferences.jsonl", "prompts.json", "questions.jsonl", "held_out.jsonl", "statistics.jsonl", "manifest.json",
    "figures.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Reader:
    return open_world(3, hops=(2,))


def setup_of(world: Reader, retriever: Any = None, questions: Sequence[Question] = ()) -> Setup:
    """The game of a small world."""
    program = LeReT(2, template="bare")
    asked = questions or world.questions
    return Setup(asked, program, retriever or Words(world), None, Reward({"recall": 1.0}), "world", index="index-1")


def silent(step: int, values: object) -> None:
    """A log nobody reads."""


def sample(world: Reader, out: Path, work: Path, params: PreferencesParams = SMALL, **more: Any) -> dict[str, float]:
    given = {"log": silent, "setup": setup_of(world), "sample": Styled, "batch_size": 5} | more
    log, setup, writer = given.pop("log"), given.pop("setup"), given.pop("sample")
    return collect.sample_preferences(params, setup, writer, out, work, log, 0, **given)


def test_what_is_kept(world: Reader, tmp_path: Path) -> None:
    logged: list[Any] = []
    found = sample(world, tmp_path / "out", tmp_path / "work", log=lambda step, row: logged.append(row))
    rows, notes = read_jsonl(tmp_path / "out/preferences.jsonl"), read_jsonl(tmp_path / "out/statistics.jsonl")
    assert found["tried"] == len(notes) == 12 and found["situations_that_teach"] == len(rows) > 4
    assert found["prompts"] == 4 and found["few_shot_ap"] > found["zero_shot_ap"]
    assert {row["hop"] for row in logged} == {1.0, 2.0}
    by_id = {question.id: question for question in world.questions}
    for row in rows:
        assert row["prompt"].startswith(f"Question: {by_id[row['question_id']].text}\n")
        assert row["sft_target"] == row["responses"][-1] and row["scores"] == sorted(row["scores"])
        assert all(row["scores"][chosen] > row["scores"][rejected] for chosen, rejected in row["pairs"])
        assert ("\nDoc 1" in row["prompt"]) == (row["hop"] == 2)
    split = {name: {row["question_id"] for row in rows if row["split"] == name} for name in ("train", "held_out")}
    assert split["train"] and split["held_out"] and not split["train"] & split["held_out"]
    assert {question.id for question in read_questions(tmp_path / "out/questions.jsonl")} == split["train"]
    assert {note["reason"] for note in notes} <= {"queries differ", "held out", "all right", "all wrong", "all alike"}
    shown = {
        row["question"] for part in read_json(tmp_path / "out/prompts.json")["sets"] for row in part["demonstrations"]
    }
    assert not shown & {by_id[note["id"]].text for note in notes}
    finish(tmp_path / "work")
    assert not list((tmp_path / "work").iterdir())


def test_the_next_hop_goes_on_from_an_unsolved_try(world: Reader, tmp_path: Path, monkeypatch: Any) -> None:
    kept: list[Any] = []
    real = collect.try_batch
    monkeypatch.setattr(collect, "try_batch", lambda *given: kept.append(real(*given)) or kept[-1])
    sample(world, tmp_path / "out", tmp_path / "work")
    rows = [row for batch in kept for row in batch]
    first = {row["question_id"]: row for row in rows if row["hop"] == 0}
    second = [row for row in rows if row["hop"] == 1]
    assert second
    for row in second:
        (found,) = row["found"]
        from_tries = [tried for tried in first[row["question_id"]]["tries"] if tried["passages"] == found["passages"]]
        assert any(tried["ap"] < 1.0 for tried in from_tries)
        for tried in row["tries"]:
            parts = [Retrieval(tuple(Passage(**p) for p in part["passages"])) for part in (found, tried)]
            names = documents_of(LeReT(2).ranked(parts))
            gold = next(q for q in world.questions if q.id == row["question_id"]).gold_ids
            assert tried["recall"] == len({*names} & {*gold}) / 2


@pytest.mark.parametrize("stop_at", [0, 2, 4])
def test_a_killed_sampling_resumes_to_the_same_bytes(world: Reader, tmp_path: Path, stop_at: int) -> None:
    def kill(step: int, values: object) -> None:
        if step == stop_at:
            raise KeyboardInterrupt

    sample(world, tmp_path / "whole", tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        sample(world, tmp_path / "parts", tmp_path / "b", log=kill)
    assert not (tmp_path / "parts").exists()
    left = Words(world)
    sample(world, tmp_path / "parts", tmp_path / "b", setup=setup_of(world, left))
    assert left.calls < 12  # prompts and finished batches were not searched again
    for name in FILES:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_a_retriever_that_is_down_loses_nothing(world: Reader, tmp_path: Path) -> None:
    sample(world, tmp_path / "whole", tmp_path / "a")
    with pytest.raises(ServiceUnavailable, match="did not answer"):
        sample(world, tmp_path / "out", tmp_path / "b", setup=setup_of(world, Words(world, fails_at=18)))
    assert not (tmp_path / "out").exists() and list((tmp_path / "b").rglob("hop-0-*.json"))
    sample(world, tmp_path / "out", tmp_path / "b")
    assert (tmp_path / "whole/preferences.jsonl").read_bytes() == (tmp_path / "out/preferences.jsonl").read_bytes()


@pytest.mark.parametrize(("fails_at", "kept"), [(2, []), (3, ["accepted"]), (8, ["accepted", "ap-00", "ap-01"])])
def test_a_retriever_that_is_down_among_the_prompts_loses_one_set(
    world: Reader, tmp_path: Path, fails_at: int, kept: list[str]
) -> None:
    whole = Words(world)
    sample(world, tmp_path / "whole", tmp_path / "a", setup=setup_of(world, whole))
    with pytest.raises(ServiceUnavailable, match="did not answer"):
        sample(world, tmp_path / "out", tmp_path / "b", setup=setup_of(world, Words(world, fails_at=fails_at)))
    assert sorted(path.stem for path in (tmp_path / "b").glob("*/prompts/*")) == kept
    left = Words(world)
    sample(world, tmp_path / "out", tmp_path / "b", setup=setup_of(world, left))
    for name in FILES:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert left.calls == whole.calls - 2 * len(kept)  # two hops each


def test_the_prompts_of_another_machine_may_be_put_in_place(world: Reader, tmp_path: Path) -> None:
    sample(world, tmp_path / "other", tmp_path / "a", SMALL.model_copy(update={"candidates": 3}))
    with pytest.raises(ServiceUnavailable, match="did not answer"):
        sample(world, tmp_path / "out", tmp_path / "b", setup=setup_of(world, Words(world, fails_at=4)))
    (run,) = (path for path in (tmp_path / "b").iterdir() if path.is_dir())
    shutil.copy(tmp_path / "other/prompts.json", run / "prompts.json")
    sample(world, tmp_path / "out", tmp_path / "b")
    for name in ("prompts.json", "preferences.jsonl"):
        assert (tmp_path / "other" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_a_stop_is_met_between_two_sets(world: Reader, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress._Stop, "leave", None)
    real = few_shot.mean_ap

    def asked_to_stop(*given: Any) -> float:
        assert progress.ask_to_stop(lambda: sys.exit(143))
        return real(*given)

    monkeypatch.setattr(few_shot, "mean_ap", asked_to_stop)
    with pytest.raises(SystemExit):
        sample(world, tmp_path / "out", tmp_path / "work")
    assert [path.stem for path in (tmp_path / "work").glob("*/prompts/ap-*")] == ["ap-00"]


def ids(path: Path) -> set[str]:
    return {question.id for question in read_questions(path)}


def by_split(folder: Path) -> dict[str, set[str]]:
    rows = read_jsonl(folder / "preferences.jsonl")
    return {name: {row["question_id"] for row in rows if row["split"] == name} for name in ("train", "held_out")}


def again(world: Reader, first: Path, out: Path, seed: int, writer: Any = Styled) -> dict[str, float]:
    """Another sampling of what ``first`` holds, as the next iteration of training makes it."""
    setup = setup_of(world, questions=read_questions(first / "questions.jsonl"))
    return collect.sample_again(first, setup, writer, out, out.with_name("again"), silent, seed)


def test_the_questions_held_out_stand_beside_those_learnt(world: Reader, tmp_path: Path) -> None:
    sample(world, tmp_path / "out", tmp_path / "work")
    held = {row["id"] for row in read_jsonl(tmp_path / "out/statistics.jsonl") if row["reason"] == "held out"}
    assert ids(tmp_path / "out/held_out.jsonl") == held and len(held) > 1
    assert "  held_out.jsonl\n" in (tmp_path / "out" / SUMS).read_text()
    check_sums(tmp_path / "out", "")


def test_a_second_sampling_keeps_split_and_prompts_and_needs_few_questions(world: Reader, tmp_path: Path) -> None:
    first = tmp_path / "first"
    sample(world, first, tmp_path / "work")
    known = ids(first / "questions.jsonl") | ids(first / "held_out.jsonl")
    assert len(known) < SMALL.pool + SMALL.validation
    for seed in range(1, 5):  # with another split about every second of them would mix
        found = again(world, first, tmp_path / f"second-{seed}", seed)
        assert found["tried"] == len(known)
        assert (tmp_path / f"second-{seed}/prompts.json").read_bytes() == (first / "prompts.json").read_bytes()
        split = by_split(tmp_path / f"second-{seed}")
        assert split["train"] and split["train"] <= ids(first / "questions.jsonl")
        assert split["held_out"] and split["held_out"] <= ids(first / "held_out.jsonl")
    third = again(world, tmp_path / "second-1", tmp_path / "third", 9)
    assert third["kept"] and by_split(tmp_path / "third")["held_out"] <= ids(first / "held_out.jsonl")


def test_a_second_sampling_without_differences_or_files_is_told(world: Reader, tmp_path: Path) -> None:
    first = tmp_path / "first"
    sample(world, first, tmp_path / "work")
    with pytest.raises(NoPreference, match="every query did as well as every other"):
        again(world, first, tmp_path / "second", 1, Parrot)
    (first / "held_out.jsonl").unlink()
    with pytest.raises(CorpusError, match=r"held_out\.jsonl is missing; train\.iterations above 1 samples again by it"):
        collect.check_repeatable(first)


class Nothing:
    """A corpus in which nothing is found."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        """No passage."""
        return [Retrieval(()) for _ in searches]


class Parrot(Styled):
    """Repeats the question whatever it is shown."""

    def _query(self, prompt: str) -> str:
        return self._read(prompt.split("\n\n")[-1])[0]


def test_an_empty_pool_is_one_clear_line(world: Reader, tmp_path: Path) -> None:
    remedy = "raise filter.preferences.pool or bootstrap_temperature, or lower min_ap"
    with pytest.raises(CorpusError, match=rf"prompts is empty: none of 8 plays .* {remedy}$"):
        sample(world, tmp_path / "out", tmp_path / "work", setup=setup_of(world, Nothing()))
    assert not (tmp_path / "out").exists()


def test_queries_that_all_tie_are_one_clear_line(world: Reader, tmp_path: Path) -> None:
    tie = "prompts of questions to learn from every query did as well as every other; raise"
    with pytest.raises(CorpusError, match=rf"no preference was found: at all .* {tie}"):
        sample(world, tmp_path / "out", tmp_path / "work", sample=Parrot)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"min_margin": 0.9},
            r"filter\.preferences\.min_margin 0\.9 left out all \d+ pairs, whose largest difference is 0\.\d+; lower",
        ),
        ({"held_out": 0.999}, r"^all 12 questions to try are held out; lower filter\.preferences\.held_out \(0\.999\)"),
        (
            {"num_partitions": 13, "partition": 0},
            r"^partition 0 of 13 has no question to try; lower filter\.preferences\.num_partitions, or download more",
        ),
    ],
)
def test_why_there_is_no_preference(world: Reader, tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    searched = Words(world)
    with pytest.raises(CorpusError, match=line) as error:
        sample(
            world,
            tmp_path / "out",
            tmp_path / "work",
            SMALL.model_copy(update=changes),
            setup=setup_of(world, searched),
        )
    assert "every query did as well" not in str(error.value) and not (tmp_path / "out").exists()
    assert bool(searched.calls) == ("min_margin" in changes)  # what is known beforehand costs nothing


class HalfParrot(Styled):
    """Repeats the question, but for one of them."""

    different = ""

    def _query(self, prompt: str) -> str:
        asked = self._read(prompt.split("\n\n")[-1])[0]
        return super()._query(prompt) if asked == self.different or self.temperature >= 1 else asked


def test_differences_at_held_out_questions_alone_are_told(world: Reader, tmp_path: Path, monkeypatch: Any) -> None:
    sample(world, tmp_path / "first", tmp_path / "work")
    rows = [row for row in read_jsonl(tmp_path / "first/preferences.jsonl") if row["split"] == "held_out"]
    (text,) = [question.text for question in world.questions if question.id == rows[0]["question_id"]]
    monkeypatch.setattr(HalfParrot, "different", text)
    with pytest.raises(
        NoPreference, match=r"found: queries differ at \d prompts, all of questions that are held out; lower filter"
    ):
        again(world, tmp_path / "first", tmp_path / "second", 1, HalfParrot)


def test_too_few_questions_are_one_clear_line(world: Reader, tmp_path: Path) -> None:
    few = setup_of(world, questions=world.questions[:12])
    with pytest.raises(CorpusError, match="12 training questions are too few"):
        sample(world, tmp_path / "out", tmp_path / "work", setup=few)


def test_another_index_is_one_clear_line(world: Reader, tmp_path: Path) -> None:
    sample(world, tmp_path / "out", tmp_path / "work")
    collect.check_index(tmp_path / "out", "index-1")
    with pytest.raises(
        IndexMismatch, match=r"was sampled with index index-1, but this one is index-2; run `dvc repro -f -s filter`"
    ):
        collect.check_index(tmp_path / "out", "index-2")


def test_partitions_are_the_whole(world: Reader) -> None:
    parts = [
        collect.part_of(world.questions, SMALL.model_copy(update={"num_partitions": 3, "partition": number}), 0)
        for number in range(3)
    ]
    assert [question for part in parts for question in part] == list(world.questions)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_equal_texts_are_on_one_side() -> None:
    sides = [{collect.is_held_out(Question(f"{n}-{copy}", f"Who {n}?"), 0.5, 0) for copy in "ab"} for n in range(50)]
    assert all(len(side) == 1 for side in sides) and len({*map(tuple, sides)}) == 2


def test_arms_are_shown_what_was_found(world: Reader, tmp_path: Path) -> None:
    sample(world, tmp_path / "out", tmp_path / "work")
    sets = chosen_prompts(read_json(tmp_path / "out/prompts.json"))
    assert sets[0] == () == read_demonstrations("", tmp_path / "out")
    assert read_demonstrations("best", tmp_path / "out") == sets[1]
    assert set(read_demonstrations("all", tmp_path / "out")) == {example for part in sets for example in part}
    with pytest.raises(CorpusError, match=r"prompts\.json is missing; an arm is shown what stage filter found"):
        read_demonstrations("best", tmp_path / "elsewhere")


def test_metrics_after_every_hop(world: Reader) -> None:
    program = LeReT(2, template="bare")
    (episode,) = play(world.questions[:1], program, Words(world), Styled(0.1))
    found = hop_metrics(episode, program)
    assert set(found) == {"recall_after_1", "recall_after_2", "ap_after_1", "ap_after_2"}
    assert found["recall_after_2"] >= found["recall_after_1"] and 0 <= found["ap_after_2"] <= 1
    assert json.dumps(found)


def test_a_server_of_the_model_writes_what_the_process_would(world: Reader, tmp_path: Path) -> None:
    """Queries come by HTTP, at the temperature that each part asks for; files are the same bytes, at any address."""
    params = ServerParams(kind="server", base_url="http://127.0.0.1:1/v1", model="mine", temperature=0.3, max_tokens=9)

    def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
        (text,) = Styled(body["temperature"]).complete([Generate(prompt=body["prompt"], stop=tuple(body["stop"]))])
        choice = {"index": 0, "finish_reason": "stop", "text": text}
        return 200, {"id": "1", "object": "text_completion", "created": 0, "model": "mine", "choices": [choice]}

    plain = sample(world, tmp_path / "plain", tmp_path / "plain-work")
    with serving(reply) as server:
        own = params.model_copy(update={"base_url": server.base_url})
        asked = SMALL.model_copy(update={"server": own})
        writers = ServerSamplers(own, max_tokens=32, seed=0, name="filter.preferences.server")
        assert sample(world, tmp_path / "served", tmp_path / "work", asked, sample=writers) == plain
        assert {body["max_tokens"] for body in server.bodies} == {32}
        assert {body["temperature"] for body in server.bodies} == {1.0, 0.1} == writers.opened.keys()
    for name in FILES:
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "served" / name).read_bytes(), name


def test_a_server_that_is_away_is_named_by_its_section(world: Reader, tmp_path: Path) -> None:
    gone = ServerParams(kind="server", base_url="http://127.0.0.1:9/v1", model="mine", deadline_seconds=0.2)
    writers = ServerSamplers(gone, max_tokens=32, seed=0, name="filter.preferences.server")
    with pytest.raises(ServiceUnavailable, match=r"filter\.preferences\.server"):
        sample(world, tmp_path / "out", tmp_path / "work", sample=writers)
