"""Queries are tried hop by hop: what is kept, what survives a kill, and what bad input gives."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harr_encyclopaedia.traces import Reader, open_world
from letters import nothing
from runs import killed_at
from serving import serving
from styled import Styled, Words, setup_of

from harr.corpus.passages import read_questions
from harr.errors import CorpusError, IndexMismatch, NoPreference, ServiceUnavailable
from harr.io.files import SUMS, check_sums, finish, read_json, read_jsonl, write_json
from harr.params.filter import PreferencesParams
from harr.params.generator import ServedParams
from harr.params.servers import ServerParams
from harr.preferences import collect
from harr.preferences.few_shot import read_demonstrations, select_prompts
from harr.preferences.pairs import documents_of
from harr.rag.generation.server import ServerSamplers
from harr.rag.pipelines.leret import LeReT
from harr.types import Generate, Passage, Question, Retrieval, Search

SMALL = PreferencesParams(pool=8, validation=4, candidates=6, prompts=3, held_out=0.3)
FILES = (
    "preferences.jsonl", "prompts.json", "questions.jsonl", "held_out.jsonl", "statistics.jsonl", "manifest.json",
    "figures.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Reader:
    return open_world(3, hops=(2,))


def sample(world: Reader, out: Path, work: Path, params: PreferencesParams = SMALL, **more: Any) -> dict[str, float]:
    given = {"log": nothing, "setup": setup_of(world), "sample": Styled, "batch_size": 5} | more
    log, setup, generator = given.pop("log"), given.pop("setup"), given.pop("sample")
    return collect.sample_preferences(params, setup, generator, out, work, log, 0, **given)


def ids(path: Path) -> set[str]:
    return {question.id for question in read_questions(path)}


def by_split(folder: Path) -> dict[str, set[str]]:
    rows = read_jsonl(folder / "preferences.jsonl")
    return {name: {row["question_id"] for row in rows if row["split"] == name} for name in ("train", "held_out")}


def again(world: Reader, first: Path, out: Path, seed: int, generator: Any = Styled) -> dict[str, float]:
    """Sample again what ``first`` holds, as the next iteration of training does."""
    setup = setup_of(world, questions=read_questions(first / "questions.jsonl"))
    return collect.sample_again(first, setup, generator, out, out.with_name("again"), nothing, seed)


@pytest.fixture(scope="module")
def first(world: Reader, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete sampling; its figures, with the number of searches and hops, and its work are next to it."""
    folder, searched, hops = tmp_path_factory.mktemp("first"), Words(world), set()

    def log(step: int, row: Any) -> None:
        hops.add(row["hop"])

    figures = sample(world, folder / "out", folder / "work", setup=setup_of(world, searched), log=log)
    write_json(folder / "figures.json", figures | {"calls": searched.calls, "logged": sorted(hops)})
    return folder / "out"


def alike(one: Path, other: Path, *names: str) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names or FILES)


def test_what_is_kept(world: Reader, first: Path) -> None:
    rows, notes = read_jsonl(first / "preferences.jsonl"), read_jsonl(first / "statistics.jsonl")
    found = read_json(first.parent / "figures.json")
    assert found["tried"] == len(notes) == 12 and found["situations_that_teach"] == len(rows) > 4
    assert found["prompts"] == 4 and found["few_shot_ap"] > found["zero_shot_ap"]
    assert found["logged"] == [1.0, 2.0]
    by_id = {question.id: question for question in world.questions}
    for row in rows:
        assert row["prompt"].startswith(f"Question: {by_id[row['question_id']].text}\n")
        assert row["sft_target"] == row["responses"][-1] and row["scores"] == sorted(row["scores"])
        assert all(row["scores"][chosen] > row["scores"][rejected] for chosen, rejected in row["pairs"])
        assert ("\nDoc 1" in row["prompt"]) == (row["hop"] == 2)
    split = by_split(first)
    assert split["train"] and split["held_out"] and not split["train"] & split["held_out"]
    assert ids(first / "questions.jsonl") == split["train"]
    held_out_ids = {note["id"] for note in notes if note["reason"] == "held out"}
    assert ids(first / "held_out.jsonl") == held_out_ids and len(held_out_ids) > 1
    assert {note["reason"] for note in notes} <= {"queries differ", "held out", "all right", "all wrong", "all alike"}
    sets = read_json(first / "prompts.json")["sets"]
    shown = {row["question"] for part in sets for row in part["demonstrations"]}
    assert not shown & {by_id[note["id"]].text for note in notes}
    assert "  held_out.jsonl\n" in (first / SUMS).read_text()
    check_sums(first, "")
    finish(first.parent / "work")
    assert not list((first.parent / "work").iterdir())


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
            names = documents_of(LeReT(2).rank(parts))
            gold = next(q for q in world.questions if q.id == row["question_id"]).gold_ids
            assert tried["recall"] == len({*names} & {*gold}) / 2


@pytest.mark.fault(36)
@pytest.mark.parametrize("stop_at", [0, 2, 4])
def test_a_killed_sampling_resumes_to_the_same_bytes(world: Reader, first: Path, tmp_path: Path, stop_at: int) -> None:
    left = Words(world)
    with pytest.raises(KeyboardInterrupt):
        sample(world, tmp_path / "parts", tmp_path / "b", log=killed_at(stop_at))
    assert not (tmp_path / "parts").exists()
    sample(world, tmp_path / "parts", tmp_path / "b", setup=setup_of(world, left))
    assert left.calls < 12  # prompts and finished batches were not searched again
    assert alike(first, tmp_path / "parts")


@pytest.mark.fault(36)
@pytest.mark.parametrize(
    ("fails_at", "kept"), [(2, []), (3, ["accepted"]), (8, ["accepted", "ap-00", "ap-01"]), (18, None)]
)
def test_a_retriever_that_is_down_loses_one_set_of_prompts_or_one_batch(
    world: Reader, first: Path, tmp_path: Path, fails_at: int, kept: list[str] | None
) -> None:
    with pytest.raises(ServiceUnavailable, match="did not answer"):
        sample(world, tmp_path / "out", tmp_path / "b", setup=setup_of(world, Words(world, fails_at=fails_at)))
    assert not (tmp_path / "out").exists()
    if kept is None:
        assert list((tmp_path / "b").rglob("hop-0-*.json"))
    else:
        assert sorted(path.stem for path in (tmp_path / "b").glob("*/prompts/*")) == kept
    left = Words(world)
    sample(world, tmp_path / "out", tmp_path / "b", setup=setup_of(world, left))
    assert alike(first, tmp_path / "out")
    calls = read_json(first.parent / "figures.json")["calls"]
    assert kept is None or left.calls == calls - 2 * len(kept)  # two hops each


def test_a_second_sampling_keeps_split_and_prompts_and_needs_few_questions(
    world: Reader, first: Path, tmp_path: Path
) -> None:
    known = ids(first / "questions.jsonl") | ids(first / "held_out.jsonl")
    assert len(known) < SMALL.pool + SMALL.validation
    for seed in range(1, 5):  # with another split about every second of them would mix
        second = tmp_path / f"second-{seed}"
        assert again(world, first, second, seed)["tried"] == len(known)
        assert alike(first, second, "prompts.json")
        split = by_split(second)
        assert split["train"] and split["train"] <= ids(first / "questions.jsonl")
        assert split["held_out"] and split["held_out"] <= ids(first / "held_out.jsonl")
    third = again(world, tmp_path / "second-1", tmp_path / "third", 9)
    assert third["kept"] and by_split(tmp_path / "third")["held_out"] <= ids(first / "held_out.jsonl")


def test_a_second_sampling_without_differences_is_refused(
    world: Reader, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoPreference, match="every query did as well as every other"):
        again(world, first, tmp_path / "second", 1, Parrot)
    rows = [row for row in read_jsonl(first / "preferences.jsonl") if row["split"] == "held_out"]
    (text,) = [question.text for question in world.questions if question.id == rows[0]["question_id"]]
    monkeypatch.setattr(HalfParrot, "different", text)
    line = r"found: queries differ at \d prompts, all of questions that are held out; lower filter"
    with pytest.raises(NoPreference, match=line):
        again(world, first, tmp_path / "half/second", 1, HalfParrot)


class Nothing:
    """A corpus in which nothing is found."""

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        return [Retrieval(()) for _ in searches]


class Parrot(Styled):
    """Repeats the question, whatever the prompt."""

    def _query(self, prompt: str) -> str:
        return self._read(prompt.split("\n\n")[-1])[0]


class HalfParrot(Styled):
    """Repeats the question, except one."""

    different = ""

    def _query(self, prompt: str) -> str:
        asked = self._read(prompt.split("\n\n")[-1])[0]
        return super()._query(prompt) if asked == self.different or self.temperature >= 1 else asked


@pytest.mark.fault(35, 37)
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"held_out": 0.999}, r"^all 12 questions to try are held out; lower filter\.preferences\.held_out \(0\.999\)"),
    ],
)
def test_why_there_is_no_preference(world: Reader, tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    searched, params = Words(world), SMALL.model_copy(update=changes)
    with pytest.raises(CorpusError, match=line) as error:
        sample(world, tmp_path / "out", tmp_path / "work", params, setup=setup_of(world, searched))
    assert "every query did as well" not in str(error.value) and not (tmp_path / "out").exists()
    assert not searched.calls  # what is known beforehand costs nothing


@pytest.mark.fault(35, 37)
def test_questions_that_teach_nothing_are_one_clear_line(world: Reader, tmp_path: Path) -> None:
    for number, (given, line) in enumerate(
        (
            (
                {"setup": setup_of(world, Nothing())},
                r"the pool of prompts is empty: none of 8 plays .* raise .* or lower min_ap$",
            ),
            (
                {"sample": Parrot},
                r"found: at all \d+ prompts of questions to learn from every query did as well as every other; raise",
            ),
            ({"setup": setup_of(world, questions=world.questions[:12])}, "12 training questions are too few"),
        )
    ):
        with pytest.raises(CorpusError, match=line):
            sample(world, tmp_path / "out", tmp_path / f"work-{number}", **given)
        assert not (tmp_path / "out").exists()


@pytest.mark.fault(38)
def test_another_index_is_one_clear_line(first: Path) -> None:
    collect.check_index(first, "index-1")
    line = r"was sampled with index index-1, but this one is index-2; run `dvc repro -f -s filter`"
    with pytest.raises(IndexMismatch, match=line):
        collect.check_index(first, "index-2")


def test_equal_texts_are_on_one_side() -> None:
    sides = [{collect.is_held_out(Question(f"{n}-{copy}", f"Who {n}?"), 0.5, 0) for copy in "ab"} for n in range(50)]
    assert all(len(side) == 1 for side in sides) and len({*map(tuple, sides)}) == 2


def test_arms_are_shown_what_was_found(first: Path, tmp_path: Path) -> None:
    sets = select_prompts(read_json(first / "prompts.json"))
    assert sets[0] == () == read_demonstrations("", first)
    assert read_demonstrations("best", first) == sets[1]
    assert set(read_demonstrations("all", first)) == {example for part in sets for example in part}
    with pytest.raises(CorpusError, match=r"prompts\.json is missing; an arm is shown what stage filter found"):
        read_demonstrations("best", tmp_path / "elsewhere")


def test_a_server_of_the_model_writes_what_the_process_would(world: Reader, first: Path, tmp_path: Path) -> None:
    """Queries come by HTTP, at the temperature that each part asks for; the files are the same at any address."""

    def reply(body: dict[str, Any], number: int) -> tuple[int, Any]:
        (text,) = Styled(body["temperature"]).complete([Generate(prompt=body["prompt"], stop=tuple(body["stop"]))])
        choice = {"index": 0, "finish_reason": "stop", "text": text}
        return 200, {"id": "1", "object": "text_completion", "created": 0, "model": "mine", "choices": [choice]}

    with serving(reply) as server:
        own = ServedParams(
            kind="server",
            server=ServerParams(name="llm", urls=(server.base_url,)),
            model="mine",
            temperature=0.3,
            max_tokens=9,
        )
        asked = SMALL.model_copy(update={"server": own})
        generators = ServerSamplers(own, max_tokens=32, seed=0, name="filter.preferences.server")
        sample(world, tmp_path / "served", tmp_path / "work", asked, sample=generators)
        assert {body["max_tokens"] for body in server.bodies} == {32}
        assert {body["temperature"] for body in server.bodies} == {1.0, 0.1} == generators.opened.keys()
    assert alike(first, tmp_path / "served")
    gone = own.model_copy(update={"server": ServerParams(urls=("http://127.0.0.1:9/v1",), deadline_seconds=0.2)})
    generators = ServerSamplers(gone, max_tokens=32, seed=0, name="filter.preferences.server")
    with pytest.raises(ServiceUnavailable, match=r"filter\.preferences\.server"):
        sample(world, tmp_path / "out", tmp_path / "gone", sample=generators)
