"""Questions are written by a server, answered again by it, and only the good ones are kept."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harr_local.asked import read_plugins, servers
from harr_questions.author import Written, plan, write_questions_of
from harr_questions.params import WritingParams
from serving import chat, serving

from flows.cli import main
from harr.corpus.passages import Passages
from harr.datasets.download import download
from harr.datasets.local import read_question_file
from harr.errors import CorpusError, ParamsError, ServiceUnavailable
from harr.params import Params
from harr.params.generator import ServedParams
from harr.params.servers import ServerParams
from harr.rag.generation.cache import CachedGenerator
from harr.types import Generate, Passage

NAMES = "Ada Bob Cleo Dan Eve Finn Gus Hal Ida Jon Kit Lou Max Ned Olga Pam Quin Ria Sam Tess Uma Vic Wes Zoe".split()
PASSAGES = [
    Passage(f"p{n}", f"{name} plays the {name.lower()}phone and lives in {name}ville, near {NAMES[n - 1]}.", name)
    for n, name in enumerate(NAMES)
]
ONE = {name: (f"Which instrument is heard from {name}?", f"{name.lower()}phone") for name in NAMES} | {
    "Ada": ("Who is heard on the adaphone?", "adaphone"),
    "Bob": ("What plays the bobphone and lives in Bobville near?", "Bob"),
    "Cleo": ("According to the passage, what is heard from Cleo?", "cleophone"),
    "Dan": ("Which instrument is heard from Dan?", "trumpet"),
    "Eve": ("Which instrument is heard from Finn, then?", "evephone"),
    "Finn": ("Which instrument, then, is heard from Finn?", "finnphone"),
    "Gus": ("Which instrument is heard from Gus?", "gusphone"),
    "Hal": ("Which instrument is heard from Hal?", "halphone"),
}
"""By the title of a passage what is asked about it, and the answer; the first eight are bad in eight ways."""


class Model:
    """A stand-in for a language model: what it says follows from its prompt, as with the most likely tokens."""

    def __init__(self, reply: str = "", gives_up_after: int = 10**6) -> None:
        self.book: dict[str, tuple[str, set[str]]] = {}
        self.asked, self.reply, self.gives_up_after = 0, reply, gives_up_after

    def complete(self, requests: Sequence[Generate]) -> list[str]:
        self.asked += len(requests)
        if self.asked > self.gives_up_after:
            raise ServiceUnavailable("no answer")
        return [self.reply or self.say(request.messages[1]["content"]) for request in requests]

    def usage(self) -> dict[str, float]:
        return {}

    def say(self, user: str) -> str:
        titles = re.findall(r"^\[\d+\] (\w+)$", user, re.MULTILINE)
        if "Question: " in user:
            asked = user.split("Question: ")[1].removesuffix("\nAnswer:")
            answer, needed = next((self.book[known] for known in self.book if known in asked), ("", {"-"}))
            return json.dumps({"answer": answer if needed <= set(titles) else ""})
        if titles[-1] == "Hal" and len(titles) == 1:
            return "I cannot."
        question, answer = ONE[titles[-1]]
        if len(titles) > 1:
            question, answer = f"What is heard beside {titles[0]}, in {titles[-1]}ville?", f"{titles[-1].lower()}phone"
        needed = {"Gus": set(), "Ida": {"-"}}.get(titles[-1], set(titles[-1:] if titles[-1] == "Kit" else titles))
        self.book[question] = answer, needed
        return "Sure:\n" + json.dumps({"questions": [{"question": question, "answer": answer}]})


Write = Callable[..., Written]
SERVER = ServedParams(kind="server", server=ServerParams(urls=("http://a",)), model="m")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write questions about the passages by a model whose replies are remembered."""

    def run(model: Model, folder: str = "questions", seed: int = 0, cache: str = "", **more: Any) -> Written:
        section = WritingParams(writer=SERVER, min_words=5, **{"hops": (1, 2), **more})
        writer = CachedGenerator(model, tmp_path / f"cache{cache}-{seed}.sqlite")
        return write_questions_of(section, PASSAGES, writer, seed, tmp_path / folder)

    return run


@pytest.mark.fault(41)
def test_questions_have_gold_and_bad_ones_a_reason(write: Write, tmp_path: Path) -> None:
    written = write(Model(), train=60, validation=20, test=40)
    splits = ("train", "validation", "test")
    rows = {split: list(read_question_file(tmp_path / f"questions/{split}.jsonl")) for split in splits}
    titles = {passage.id: passage.title for passage in PASSAGES}
    for questions in rows.values():
        for question in questions:
            assert len(question.gold_ids) == int(question.kind[0])
            assert question.answers == (f"{titles[question.gold_ids[-1]].lower()}phone",)
    gold = [{pid for question in questions for pid in question.gold_ids} for questions in rows.values()]
    assert sum(map(len, gold)) == len(set().union(*gold)), "no passage is gold in two splits"
    assert {question.kind for question in rows["train"]} == {"1 hop", "2 hops"}
    dropped = [json.loads(line) for line in (tmp_path / "questions" / "dropped.jsonl").read_text().splitlines()]
    assert dropped == written.dropped and all(row["passages"] and row["split"] for row in dropped)
    by_title = {titles[row["supporting"][0]]: row["reason"] for row in dropped if row["type"] == "1 hop"}
    assert by_title.pop("Eve" if "Eve" in by_title else "Finn").startswith("the same as q-")
    assert by_title == {
        "Ada": "the answer stands in the question",
        "Bob": "the question copies its passage",
        "Cleo": "the question speaks of its passage",
        "Dan": "the answer stands in none of its passages",
        "Gus": "it needs no passage",
        "Hal": "no question, or no answer",
        "Ida": "its passages do not answer it",
    }
    alone = [row for row in dropped if row["reason"] == "one of its passages is enough"]
    assert alone and all(titles[row["supporting"][-1]] == "Kit" for row in alone)
    assert {"answered", "without passages", "from one alone"} <= alone[0].keys()
    assert written.missing


@pytest.mark.fault(41)
def test_the_same_seed_writes_the_same_asks_nothing_again_and_goes_on_where_it_was_cut_off(
    write: Write, tmp_path: Path
) -> None:
    whole, again, cut, rest = Model(), Model(), Model(gives_up_after=40), Model()
    sizes = {"train": 6, "validation": 2, "test": 4}
    written = write(whole, **sizes)
    assert Counter(len(draft.passages) for draft in written.kept["train"]) == {1: 3, 2: 3} and whole.asked
    write(again, "again", **sizes)
    assert not again.asked
    with pytest.raises(ServiceUnavailable):
        write(cut, "cut", cache="other", **sizes)
    assert not (tmp_path / "cut").exists()
    rest.book = cut.book
    write(rest, "cut", cache="other", **sizes)
    assert 0 < rest.asked < whole.asked
    for path in (tmp_path / "questions").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
        assert path.read_bytes() == (tmp_path / "cut" / path.name).read_bytes()
    assert write(Model(), "other", seed=1, **sizes).kept != written.kept


@pytest.mark.fault(41)
def test_a_split_without_questions_is_one_line_and_the_reasons_stay(write: Write, tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as error:
        write(Model(reply="no"), train=2, validation=0, test=2, hops=(1,))
    assert "questions: no train question was kept; dropped: no question, or no answer 24; see" in str(error.value)
    assert len((tmp_path / ".questions.tmp" / "dropped.jsonl").read_text().splitlines()) == 24
    short = [Passage("p", "Ada.")] * 3
    with pytest.raises(CorpusError, match=r"questions: 0 of 3 passages have plugins\.questions\.min_words 20 words"):
        plan(WritingParams(writer=SERVER), short, 0)


@pytest.mark.parametrize(("passages", "counts"), [(3, (200, 50, 100)), (7, (4, 3, 1)), (40, (200, 0, 100))])
def test_every_split_has_passages_also_in_other_scripts(passages: int, counts: tuple[int, int, int]) -> None:
    train, validation, test = counts
    params = WritingParams(writer=SERVER, train=train, validation=validation, test=test, hops=(1,))
    parts = plan(params, [Passage(f"p{n}", "水泵把水从下面的水箱送到上面的水箱里。" * 2) for n in range(passages)], 0)
    open_ = {part.split: len(part.open) for part in parts}
    assert sum(open_.values()) == passages
    assert all((number > 0) == (count > 0) for number, count in zip(open_.values(), counts, strict=True))


@pytest.mark.fault(41)
def test_the_command_writes_files_that_the_recipe_reads(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("documents").mkdir()
    text = "# {0}\n{1} Its maker is told nowhere else, and whoever asks for it has to come here and read it.\n"
    for passage in PASSAGES:
        Path(f"documents/{passage.title}.md").write_text(text.format(passage.title, passage.text))
    recipe = Path("recipes/own_documents.yaml").read_text()
    model = Model()
    with serving(lambda body, number: (200, chat(model.say(body["messages"][1]["content"])))) as served:
        Path("params.yaml").write_text(re.sub(r"http://127\.0\.0\.1:\d+/v1", served.base_url, recipe))
        with pytest.raises(SystemExit) as ended:
            main("questions", "--hops", "1", "2", "--out", "questions")
        assert not ended.value.code
        output = capsys.readouterr().out
        assert (
            "24 passages" in output
            and "written: questions/" in output
            and "the question copies its passage 1" in output
        )
        with pytest.raises(SystemExit) as ended:
            main("questions")
        assert ended.value.code == 1
    assert "questions exists and is left as it is: it may hold edits; remove it" in capsys.readouterr().err
    section = Params.load().download
    figures = download(section, Path("corpus"), Path("checked"), Path("work/download"))
    assert len(Passages.open(Path("corpus"))) == 24 and figures["train_questions"] > 5 < figures["test_questions"]


def test_doctor_knows_the_section_and_its_server(workplace: Path) -> None:
    params = Params.load(Path("recipes/own_documents.yaml"))
    assert [one.section for one in servers(read_plugins(params))] == ["plugins.questions.writer"]
    wrong = params.model_copy(update={"plugins": {"questions": {}, "other": {"base_url": "x"}}})
    with pytest.raises(ParamsError, match=r"params\.yaml: section plugins\.questions: writer is missing"):
        read_plugins(wrong)
