"""Long documents: facts stay in order, gold stays gold, and nothing of the test is seen in training."""

import random
from pathlib import Path
from typing import Any

import pytest
from babi_oracle import gold_of
from downloading import passages, questions, run, write_rows
from harr_lengths import babilong as data, stories as haystack
from harr_lengths.babi import Story, make_stories
from harr_lengths.babi_rules import event_of
from harr_lengths.babilong import BabiLongParams
from harr_lengths.noise import noise_sentences
from harr_lengths.stories import hide
from hypothesis import given, strategies as st

from harr.datasets.source import Source
from harr.errors import CorpusError
from harr.params.download import FunctionDatasetParams

BOOK = [f"Sentence number {i} is about nothing." for i in range(300)]
TWICE = Story("Where is Mary?", ("office",), ("Mary moved to the office.",) * 3, (2,))


@pytest.fixture
def book() -> None:
    Path("book.txt").write_text("\n\n".join(" ".join(BOOK[i : i + 7]) for i in range(0, len(BOOK), 7)))


def babilong(task: int, learnt: int = 5, asked: int = 5, sentences: int = 30, **more: Any) -> BabiLongParams:
    """A section of stories in the noise of the book."""
    values = {"task": task, "noise": "book.txt", "sentences": sentences}
    return BabiLongParams.model_validate({**values, "train_questions": learnt, "test_questions": asked, **more})


def stage(params: BabiLongParams) -> dict[str, float]:
    """Stage download of such a section."""
    settings = params.model_dump(mode="json", exclude={"validation_questions"})
    section = {"dataset": "function", "function": "harr_lengths.babilong:DATASET", "settings": settings}
    return run(FunctionDatasetParams(**section, validation_questions=params.validation_questions))


def documents(params: BabiLongParams) -> Source:
    return haystack.documents(data.babilong(params))


@given(
    facts=st.lists(st.sampled_from(["Fact a.", "Fact b.", "Fact c."]), min_size=1, max_size=8),
    spare=st.integers(0, 30),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_facts_and_noise_keep_their_order(facts: list[str], spare: int, seed: int, data: st.DataObject) -> None:
    gold = tuple(data.draw(st.permutations(range(len(facts)))))[:3]
    document, places = hide(Story("?", ("a",), tuple(facts), gold), BOOK[:30], len(facts) + spare, random.Random(seed))
    assert len(document) == len(facts) + spare
    assert [sentence for sentence in document if sentence.startswith("Fact")] == facts
    assert [document[place] for place in places] == [facts[fact] for fact in gold]
    noise = [BOOK.index(sentence) for sentence in document if sentence.startswith("Sentence")]
    assert noise == list(range(noise[0], noise[0] + spare)) if noise else spare == 0


@pytest.mark.usefixtures("book")
def test_no_story_is_in_two_splits() -> None:
    """Task 4 has few different stories, so that chance alone would put some into two splits."""
    params = babilong(4, 300, 100, 12)
    validated = params.model_copy(update={"validation_questions": 100})
    stories = haystack.stories(data.babilong(validated))
    splits = [{(story.question, story.facts) for story in stories[split]} for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == len(set().union(*splits)) and len(stories["validation"]) == 100
    assert (
        stories["test"] == haystack.stories(data.babilong(params))["test"]
        and stage(validated)["validation_questions"] == 100
    )
    second = {f"n{row:07d}" for row in range(150, 300)}
    given = {pid for question in questions("validation") for pid in question.candidate_ids}
    assert given and not second & given, "noise as in training"


def test_every_place_and_every_start_is_possible_and_gold_is_at_its_own_place() -> None:
    rng = random.Random(0)
    story = Story("?", ("a",), ("Fact.",), (0,))
    documents = [hide(story, BOOK[:6], 5, rng) for _ in range(300)]
    assert {gold for _, gold in documents} == {(place,) for place in range(5)}
    assert {min(sentence for sentence in document if sentence != "Fact.") for document, _ in documents} == set(BOOK[:3])
    document, (place,) = hide(TWICE, BOOK, 20, rng)
    same = [i for i, sentence in enumerate(document) if sentence == TWICE.facts[0]]
    assert len(same) == 3 and place == same[2], "the last of three equal facts is gold"


@pytest.mark.parametrize("task", [1, 2, 3, 4, 5])
@pytest.mark.usefixtures("book")
def test_a_document_answers_its_question(task: int) -> None:
    source, again, other = (documents(babilong(task, 30, 20, 60, seed=seed)) for seed in (0, 0, 1))
    texts = {passage.id: passage.text for passage in source.passages}
    train, test = list(source.train), list(source.test)
    assert (len(train), len(test)) == (30, 20)
    assert train == list(again.train) != list(other.train) and test == list(again.test) != list(other.test)
    for question in (*train, *test):
        document = [texts[pid] for pid in question.candidate_ids]
        places = tuple(question.candidate_ids.index(pid) for pid in question.gold_ids)
        assert len(document) == 60 == len(set(question.candidate_ids))
        assert gold_of(task, question.text, document) == (question.answers[0], places)
        assert question.kind == f"qa{task}"
    noise = [{pid for q in split for pid in q.candidate_ids if "-" not in pid} for split in (train, test)]
    assert all(noise) and not noise[0] & noise[1]


def write_stories(path: str, stories: list[Story]) -> str:
    names = {"question": "question", "answers": "answers", "facts": "facts", "supporting": "gold"}
    return write_rows(path, ({key: getattr(one, name) for key, name in names.items()} for one in stories))


@pytest.mark.usefixtures("book")
def test_official_files_go_through_the_stage_and_a_limit_draws_by_the_seed() -> None:
    made = list(make_stories(1, 30, seed=5))
    files = {"train": (write_stories("train.jsonl", made[:22]),), "test": (write_stories("test.jsonl", made[20:]),)}
    counts = stage(babilong(1, 100, 100, 10, **files))
    assert (counts["train_questions"], counts["test_questions"], counts["searchable"]) == (20, 10, 300)
    assert counts["train_questions_dropped_because_in_test"] == 0  # the loader left out the two that are in both
    text_of = {passage.id: passage.text for passage in passages()}
    for question, story in zip(questions("test"), made[20:], strict=True):
        assert question.text == story.question and question.answers == story.answers
        assert [text_of[pid] for pid in question.gold_ids] == [story.facts[place] for place in story.gold]
    drawn = [haystack.stories(data.babilong(babilong(1, 5, 5, 10, **files, seed=seed)))["test"] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and drawn[0] != made[20:25]
    assert [len(own) for own in drawn] == [5] * 3 and all(story in made[20:] for story in drawn[0])


@pytest.mark.usefixtures("book")
def test_what_does_not_fit_is_left_out_or_one_line() -> None:
    made = list(make_stories(3, 40, seed=9))
    short, long = ([story for story in made if (len(story.facts) <= 30) is fits] for fits in (True, False))
    params = babilong(3, 100, 3, train=(write_stories("train.jsonl", [*long, *short]),))
    assert [question.text for question in documents(params).train] == [story.question for story in short]
    only_long = params.model_copy(update={"train": (write_stories("long.jsonl", long),)})
    with pytest.raises(CorpusError, match=rf"0 of {len(long)} train stories fit into 30 sentences, expected 1"):
        documents(only_long)
    with pytest.raises(CorpusError, match=r"0 of \d+ test stories fit into 1 sentences, expected 1 that"):
        documents(babilong(4, 1, 1, 1))
    with pytest.raises(CorpusError, match=r"a story of 3 facts does not fit into 2 sentences; raise"):
        hide(TWICE, BOOK, 2, random.Random(0))
    with pytest.raises(CorpusError, match=r"of 400 sentences needs 397 of noise, found 300; name a longer text"):
        hide(TWICE, BOOK, 400, random.Random(0))
    with pytest.raises(CorpusError, match=r"of 160 sentences needs 158 of noise, found 150; name a longer text"):
        list(documents(babilong(4, sentences=160)).train)


def test_noise_has_no_facts_and_no_sentence_twice() -> None:
    texts = ("It rained. Mary went to the kitchen. It  rained.\nSo she stayed.", "Then Mary got the milk and left.")
    path = write_rows("noise.jsonl.gz", ({"text": text} for text in texts))
    assert noise_sentences(path) == ["It rained.", "So she stayed."]
    assert not any(event_of(sentence) for sentence in noise_sentences("harr_encyclopaedia.dataset:noise"))


def test_wrong_noise_is_one_line() -> None:
    for name, content, message in (
        ("none.txt", None, r"none\.txt is missing; set download\.settings\.noise"),
        ("empty.txt", b"\n\n", r"empty\.txt: no sentences"),
        ("latin.txt", b"caf\xe9 is open.", r"latin\.txt: not UTF-8"),
        ("rows.jsonl", b'{"title": "x"}', r"rows\.jsonl:1: noise without text"),
    ):
        if content is not None:
            Path(name).write_bytes(content)
        with pytest.raises(CorpusError, match=message) as error:
            noise_sentences(name)
        assert "\n" not in str(error.value)
