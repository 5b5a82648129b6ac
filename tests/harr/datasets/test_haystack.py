"""Long documents: facts stay in order, gold stays gold, and nothing of the test is seen in training."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from babi_oracle import gold_of
from hypothesis import given, strategies as st

from harr.corpus.passages import Passages, read_questions
from harr.datasets import haystack
from harr.datasets.babi import Story, make_stories
from harr.datasets.babi_rules import event_of
from harr.datasets.download import download
from harr.datasets.haystack import documents, hide, longer, noise_for, sentences_for, tokens_per_sentence
from harr.datasets.noise import noise_sentences, split_sentences
from harr.errors import CorpusError
from harr.params.download import BabiLongParams, RulerParams, RulerQAParams
from harr.types import Question

BOOK = [f"Sentence number {i} is about nothing." for i in range(300)]
TWICE = Story("Where is Mary?", ("office",), ("Mary moved to the office.",) * 3, (2,))


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("\n\n".join(" ".join(BOOK[i : i + 7]) for i in range(0, len(BOOK), 7)))
    return "book.txt"


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


def test_validation_stories_are_neither_learnt_nor_tested(book: str) -> None:
    """Task 4 has few different stories, so that chance alone would put some into two splits."""
    params = BabiLongParams(
        dataset="babilong", task=4, noise=book, sentences=12, train_questions=400, test_questions=100
    )
    validated = params.model_copy(update={"validation_questions": 100})
    figures = download(validated, Path("data/corpus"), Path("data/questions"), Path("work/download"))
    told = haystack.stories(validated)
    splits = {split: {(story.question, story.facts) for story in told[split]} for split in told}
    assert not splits["validation"] & (splits["train"] | splits["test"]) and len(told["validation"]) == 100
    assert told["test"] == haystack.stories(params)["test"] and figures["validation_questions"] == 100
    questions = read_questions(Path("data/questions/validation.jsonl"))
    second = {f"n{row:07d}" for row in range(150, 300)}
    assert not second & {pid for question in questions for pid in question.candidate_ids}, "noise as in training"


def test_a_sentence_that_stands_twice_is_gold_at_its_own_place() -> None:
    document, (place,) = hide(TWICE, BOOK, 20, random.Random(0))
    same = [i for i, sentence in enumerate(document) if sentence == TWICE.facts[0]]
    assert len(same) == 3 and place == same[2]


def test_every_place_and_every_start_is_possible() -> None:
    rng = random.Random(0)
    story = Story("?", ("a",), ("Fact.",), (0,))
    documents = [hide(story, BOOK[:6], 5, rng) for _ in range(300)]
    assert {gold for _, gold in documents} == {(place,) for place in range(5)}
    assert {min(sentence for sentence in document if sentence != "Fact.") for document, _ in documents} == set(BOOK[:3])


def test_what_does_not_fit_is_one_line() -> None:
    with pytest.raises(CorpusError, match=r"a story of 3 facts does not fit into 2 sentences; raise"):
        hide(TWICE, BOOK, 2, random.Random(0))
    with pytest.raises(CorpusError, match=r"of 400 sentences needs 397 of noise, found 300; name a longer text"):
        hide(TWICE, BOOK, 400, random.Random(0))


def test_a_length_in_tokens_becomes_sentences() -> None:
    def words(texts: Sequence[str]) -> np.ndarray:
        return np.array([2 + len(text.split()) for text in texts])  # as if each text had two marks around it

    assert tokens_per_sentence(BOOK, words) == 6.0
    assert (sentences_for(600, 6.0), sentences_for(1, 6.0)) == (100, 1)


def test_long_documents_share_their_noise_and_short_ones_have_parts_of_it(book: str, monkeypatch) -> None:
    monkeypatch.setattr(haystack, "SHARED", 100)
    params = BabiLongParams(dataset="babilong", task=1, noise=book, sentences=20, train_questions=1, test_questions=9)

    def noise_of(sentences: int) -> list[tuple[str, ...]]:
        noise = noise_for(params, sentences)
        assert len(noise) == max(sentences, 100) and set(noise) <= set(BOOK[150:]), "the half that training left"
        return [tuple(p.text for p in passages if p.text in noise) for _, passages in longer(params, sentences, noise)]

    assert all(set(noise) <= set(BOOK[150:290]) and len(noise) >= 130 for noise in noise_of(140))
    assert len(set(noise_of(20))) > 3


@pytest.mark.parametrize("task", [1, 2, 3, 4, 5])
def test_a_document_answers_its_question(book: str, task: int) -> None:
    params = BabiLongParams(
        dataset="babilong", task=task, noise=book, sentences=60, train_questions=20, test_questions=10
    )
    source = documents(params)
    passages = {passage.id: passage.text for passage in source.passages}
    for split, count in (("train", 20), ("test", 10)):
        questions = list(getattr(source, split))
        assert len(questions) == count
        for question in questions:
            document = [passages[pid] for pid in question.candidate_ids]
            places = tuple(question.candidate_ids.index(pid) for pid in question.gold_ids)
            assert len(document) == 60 == len(set(question.candidate_ids))
            assert gold_of(task, question.text, document) == (question.answers[0], places)
            assert question.kind == f"qa{task}"


@pytest.mark.parametrize("noise", ["book.txt", "world", "repeated", "needles"])
@pytest.mark.parametrize("kind", ["single", "multi_key", "multi_value", "multi_query"])
def test_needles_are_in_the_document(book: str, kind: str, noise: str) -> None:
    source = documents(
        RulerParams(dataset="ruler", kind=kind, noise=noise, sentences=40, train_questions=6, test_questions=5)
    )
    passages = {passage.id: passage.text for passage in source.passages}
    for question in (*source.train, *source.test):
        numbers = [passages[pid].rstrip(".").split()[-1] for pid in question.gold_ids]
        assert ", ".join(numbers) == question.answers[0]
        assert len(question.candidate_ids) == 40 and set(question.gold_ids) <= set(question.candidate_ids)
        between = [passages[pid] for pid in question.candidate_ids if pid.startswith("n")]
        assert len(set(between)) == (5 if noise == "repeated" else len(between))
        assert all(text.startswith("One of the special") for text in between) == (noise == "needles")


def ruler_qa(folder: Path, **changed: object) -> RulerQAParams:
    """Six questions of two paragraphs each, among 50 others."""
    rows = [{"id": f"p{i}", "title": f"Title {i}", "text": f"Paragraph {i}."} for i in range(62)]
    (folder / "paragraphs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, first in (("train", 0), ("test", 3)):
        asked = [
            {"id": f"q{i}", "question": f"What of {i}?", "answers": [f"a{i}"], "supporting": [f"p{i}", f"p{i + 6}"]}
            for i in range(first, first + 3)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    values = {
        "noise": str(folder / "paragraphs.jsonl"),
        "train": [str(folder / "train.jsonl")],
        "test": [str(folder / "test.jsonl")],
        "sentences": 12,
    }
    return RulerQAParams.model_validate({"dataset": "ruler_qa", **values, **changed})


def test_gold_paragraphs_stand_among_those_of_no_question(tmp_path: Path) -> None:
    source = documents(ruler_qa(tmp_path))
    passages = {passage.id: passage.text for passage in source.passages}
    train, test = list(source.train), list(source.test)
    assert [len(train), len(test)] == [3, 3]
    for question in (*train, *test):
        number = int(question.text.split()[-1].rstrip("?"))
        told = [passages[pid] for pid in question.gold_ids]
        assert told == [f"Title {i}: Paragraph {i}." for i in (number, number + 6)]
        assert question.answers == (f"a{number}",) and question.kind == "qa" and len(question.candidate_ids) == 12
        others = {passages[pid] for pid in question.candidate_ids} - set(told)
        assert all(int(text.split()[-1].rstrip(".")) >= 12 for text in others) and len(others) == 10
    noise = [{pid for q in split for pid in q.candidate_ids if pid.startswith("n")} for split in (train, test)]
    assert not noise[0] & noise[1]
    orders = {q.candidate_ids.index(q.gold_ids[0]) < q.candidate_ids.index(q.gold_ids[1]) for q in (*train, *test)}
    assert orders == {True, False}, "gold paragraphs come in any order"
    longer_ones = list(longer(params := ruler_qa(tmp_path), 20, noise_for(params, 20)))
    assert [len(passages) for _, passages in longer_ones] == [20] * 3


def test_a_question_without_its_paragraphs_is_one_line(tmp_path: Path) -> None:
    params = ruler_qa(tmp_path)
    row = {"id": "odd", "question": "What?", "answers": ["a"]}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    with pytest.raises(CorpusError, match="question 'odd': no supporting paragraphs; RULER's QA hides"):
        documents(params)
    (tmp_path / "test.jsonl").write_text(json.dumps({**row, "supporting": ["p99"]}))
    with pytest.raises(CorpusError, match=r"question 'odd': supporting 'p99' is not in .*paragraphs\.jsonl"):
        documents(params)


def stored(questions: list[Question], passages: dict[str, str]) -> tuple[set[str], set[tuple[str, ...]]]:
    noise = {pid for question in questions for pid in question.candidate_ids if "-" not in pid}
    stories = {
        (question.text, *(passages[pid] for pid in question.candidate_ids if "-" in pid)) for question in questions
    }
    return noise, stories


def test_training_and_test_share_neither_story_nor_noise(book: str) -> None:
    for task in (1, 4):
        params = BabiLongParams(
            dataset="babilong", task=task, noise=book, sentences=30, train_questions=900, test_questions=600
        )
        source = documents(params)
        passages = {passage.id: passage.text for passage in source.passages}
        train, test = stored(list(source.train), passages), stored(list(source.test), passages)
        assert not train[0] & test[0] and not train[1] & test[1]


def test_equal_seeds_give_equal_data(book: str) -> None:
    def data(seed: int) -> tuple[list[object], ...]:
        source = documents(
            BabiLongParams(
                dataset="babilong", task=2, noise=book, sentences=70, train_questions=5, test_questions=5, seed=seed
            )
        )
        return list(source.passages), list(source.train), list(source.test)

    assert data(1) == data(1)
    assert data(1) != data(2)


def write_stories(path: str, stories: list[Story]) -> str:
    rows = [{"question": s.question, "answers": s.answers, "facts": s.facts, "supporting": s.gold} for s in stories]
    Path(path).write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_limit_draws_official_stories_by_the_seed(book: str, tmp_path: Path) -> None:
    made = list(make_stories(1, 40, seed=5))
    rows = [
        {"task": "qa1", "question": story.question, "answers": story.answers, "facts": story.facts}
        | {"supporting": story.gold}
        for story in made
    ]
    path = tmp_path / "qa1.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn = [
        haystack.stories(
            BabiLongParams(
                dataset="babilong", task=1, test=(str(path),), noise=book, sentences=30, test_questions=10, seed=seed
            )
        )["test"]
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2] and drawn[0] != made[:10]
    assert [len(own) for own in drawn] == [10] * 3 and all(story in made for story in drawn[0])


def test_official_files_go_through_the_stage(book: str) -> None:
    stories = list(make_stories(1, 30, seed=5))
    train, test = write_stories("train.jsonl", stories[:22]), write_stories("test.jsonl", stories[20:])
    params = BabiLongParams(dataset="babilong", task=1, train=(train,), test=(test,), noise=book, sentences=10)
    counts = download(params, Path("data/corpus"), Path("data/questions"), Path("work/download"))
    assert (counts["train_questions"], counts["test_questions"], counts["searchable"]) == (20, 10, 300)
    assert counts["train_questions_dropped_because_in_test"] == 0  # the loader left out the two that are in both
    corpus = Passages.open(Path("data/corpus"))
    for question, story in zip(read_questions(Path("data/questions/test.jsonl")), stories[20:], strict=True):
        assert question.text == story.question and question.answers == story.answers
        rows = corpus.rows_of(question.gold_ids)
        assert [passage.text for passage in corpus.take([rows[pid] for pid in question.gold_ids])] == [
            story.facts[place] for place in story.gold
        ]


def test_stories_longer_than_a_document_are_left_out(book: str) -> None:
    short, long = (
        [story for story in make_stories(3, 40, seed=9) if (len(story.facts) <= 30) is fits] for fits in (True, False)
    )
    path = write_stories("train.jsonl", [*long, *short])
    params = BabiLongParams(dataset="babilong", task=3, train=(path,), noise=book, sentences=30, test_questions=3)
    assert [question.text for question in documents(params).train] == [story.question for story in short]
    only_long = write_stories("long.jsonl", long)
    with pytest.raises(CorpusError, match=rf"0 of {len(long)} train stories fit into 30 sentences, expected 1"):
        documents(params.model_copy(update={"train": (only_long,)}))
    with pytest.raises(CorpusError, match=r"0 of \d+ test stories fit into 1 sentences, expected 1 that"):
        documents(
            BabiLongParams(dataset="babilong", task=4, noise=book, sentences=1, train_questions=1, test_questions=1)
        )


def test_noise_that_is_too_short_is_one_line(book: str) -> None:
    source = documents(RulerParams(dataset="ruler", kind="single", noise=book, sentences=160))
    with pytest.raises(CorpusError, match="needs 159 of noise, found 150; name a longer text"):
        list(source.train)


def test_the_world_is_noise_enough() -> None:
    source = documents(RulerParams(dataset="ruler", kind="single", sentences=2500, train_questions=2, test_questions=2))
    assert sum(1 for _ in source.passages) > 5000
    assert [len(question.candidate_ids) for question in (*source.train, *source.test)] == [2500] * 4


def test_noise_has_no_facts_and_no_sentence_twice(tmp_path: Path) -> None:
    rows = [
        {"text": "It rained. Mary went to the kitchen. It  rained.\nSo she stayed."},
        {"text": "Then Mary got the milk and left."},
    ]
    path = tmp_path / "noise.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert noise_sentences(str(path)) == ["It rained.", "So she stayed."]
    assert not any(event_of(sentence) for sentence in noise_sentences("world"))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He said: “Go!” She went to St. Ives. 3 came.", ["He said: “Go!”", "She went to St. Ives.", "3 came."]),
        (
            "J. R. Brown ran... and fell. (All of it.) Then no",
            ["J. R. Brown ran... and fell.", "(All of it.)", "Then no"],
        ),
        ("CHAPTER\n\n  1", ["CHAPTER 1"]),
        ("word", []),
        ("", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, r"none\.txt is missing; set download\.noise"),
        ("empty.txt", b"\n\n", r"empty\.txt: no sentences"),
        ("latin.txt", b"caf\xe9 is open.", r"latin\.txt: not UTF-8"),
        ("rows.jsonl", b'{"title": "x"}', r"rows\.jsonl:1: noise without text"),
    ],
)
def test_wrong_noise_is_one_line(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message) as error:
        noise_sentences(str(tmp_path / name))
    assert "\n" not in str(error.value)
