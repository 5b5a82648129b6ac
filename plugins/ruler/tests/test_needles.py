"""Needles: the values asked for are the values of the gold facts, and of no other."""

import re
from pathlib import Path

import pytest
from harr_lengths.answers import exam_of, judge_reply, read_answers
from harr_lengths.documents import noise_for, stretch_stories
from harr_lengths.stories import Stories
from harr_ruler.needles import KINDS, distractors, make_needles

from harr.datasets import dataset_of
from harr.datasets.preview import preview
from harr.errors import CorpusError, ParamsError
from harr.params.download import FunctionDatasetParams
from harr.types import Generate

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
KEY = {"words": r"[a-z]+-[a-z]+", "uuids": UUID}
VALUE = {"numbers": r"\d{7}", "uuids": UUID}


def section(function: str = "harr_ruler.needles:DATASET", **settings: object) -> FunctionDatasetParams:
    return FunctionDatasetParams(dataset="function", function=function, settings={"noise": "repeated"} | settings)


def key_and_value(fact: str, keys: str, values: str) -> tuple[str, str]:
    """The key and the value of a needle, which must have RULER's form."""
    found = re.fullmatch(f"One of the special magic {values} for ({KEY[keys]}) is: ({VALUE[values]})\\.", fact)
    assert found, fact
    return found[1], found[2]


@pytest.mark.parametrize(("keys", "values"), [("words", "numbers"), ("uuids", "uuids")])
@pytest.mark.parametrize(
    ("kind", "facts", "gold"), [("single", 1, 1), ("multi_key", 4, 1), ("multi_value", 4, 4), ("multi_query", 4, 4)]
)
def test_gold_facts_are_those_of_the_names_in_the_question(
    kind: str, facts: int, gold: int, keys: str, values: str
) -> None:
    for story in make_needles(kind, 50, 0, keys, values):
        assert (len(story.facts), len(story.gold)) == (facts, gold)
        pairs = [key_and_value(fact, keys, values) for fact in story.facts]
        asked = {place for place, (key, _) in enumerate(pairs) if key in story.question}
        assert set(story.gold) == asked
        assert story.answers == (", ".join(pairs[place][1] for place in story.gold),)
        assert len({value for _, value in pairs}) == facts
        assert story.question.startswith("What are all the special" if gold > 1 else "What is the special")


def test_an_unknown_kind_and_too_many_names_are_one_line() -> None:
    with pytest.raises(CorpusError, match="needle kind 'few' is unknown; expected one of single, multi_key"):
        list(make_needles("few", 1, 0))
    with pytest.raises(CorpusError, match=r"5,000 needles needs as many names, found 4,949; set keys to"):
        distractors(5000, 0)


@pytest.mark.parametrize("noise", ["book.txt", "harr_encyclopaedia.dataset:noise", "repeated", "needles"])
@pytest.mark.parametrize("kind", ["multi_key", "multi_value"])
def test_needles_are_in_the_document(kind: str, noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(" ".join(f"Sentence number {i} is about nothing." for i in range(300)))
    params = section(kind=kind, noise=noise, sentences=40, train_questions=6, test_questions=5)
    found, own = dataset_of(params)
    source = found.load(own)
    assert found.apart and preview(params, "test", [], 0, 0).corpus.startswith("documents of 40 sentences")
    assert isinstance(found, Stories)
    stories = found.long_documents(own)
    longest = [len(passages) for _, passages in stretch_stories(stories, 50, noise_for(stories, 50))]
    assert longest == [50] * 5, "as `harr lengths` plays them"
    texts = {passage.id: passage.text for passage in source.passages}
    for question in (*source.train, *source.test):
        numbers = [texts[pid].rstrip(".").split()[-1] for pid in question.gold_ids]
        assert ", ".join(numbers) == question.answers[0]
        assert len(question.candidate_ids) == 40 and set(question.gold_ids) <= set(question.candidate_ids)
        between = [texts[pid] for pid in question.candidate_ids if pid.startswith("n")]
        assert len(set(between)) == (5 if noise == "repeated" else len(between))
        assert all(text.startswith("One of the special") for text in between) == (noise == "needles")


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("values", ["numbers", "uuids"])
def test_values_of_needles_count_in_any_order(kind: str, values: str) -> None:
    exam = exam_of(section(kind=kind, values=values))
    assert exam
    for story in make_needles(kind, 5, seed=0, values=values):
        wanted = story.answers[0].split(", ")
        assert judge_reply(f"The values are {','.join(reversed(wanted))}.", story.answers, exam)["answer_em"] == 1
        part = judge_reply(f"The values are {wanted[0]}.", story.answers, exam)
        assert (part["answer_em"], part["answer_f1"]) == (len(wanted) == 1, pytest.approx(2 / (1 + len(wanted))))


def test_a_reader_is_asked_by_the_prompt_of_the_needles() -> None:
    class Reader:
        asked: tuple[Generate, ...] = ()

        def complete(self, requests: list[Generate]) -> list[str]:
            Reader.asked = tuple(requests)
            return ["The values are 2222222."]

        def usage(self) -> dict[str, float]:
            return {}

    row = {"id": "q", "question": "Which?", "answers": ["1111111"], "picked": [9, 4], "texts": ["is: 1.", "is: 2."]}
    answered = read_answers([row], Reader(), exam_of(section(kind="single")))[0]
    (asked,) = Reader.asked
    text = asked.messages[-1]["content"]
    assert "Context: is: 2. is: 1.\n\nQuestion: Which?" in text and "$" not in text
    assert (answered["answer"], answered["answer_em"]) == ("2222222", 0.0)


def test_settings_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(ParamsError, match=r"^download.settings: unknown parameter knd; did you mean kind\?"):
        dataset_of(section(kind="single", knd="single"))
    with pytest.raises(ParamsError, match=r"^download.settings: kind: should be 'single', 'multi_key'"):
        dataset_of(section(kind="few"))
