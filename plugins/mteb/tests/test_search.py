"""mteb over a folder and over a conversation."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harr_mteb.search import MtebSearch, as_search, run_tasks, task_of
from projects import make_project, train_stand_in

import harr
from flows.cli import main
from harr.corpus.passages import Passages, read_questions
from harr.errors import CorpusError, ModelError
from harr.io.files import write_text
from harr.types import Passage, Question
from tasks.paths import CORPUS, QUESTIONS, RETRIEVER

CHAT = [
    {"role": "user", "content": "Who founded Acme?"},
    {"role": "assistant", "content": "Ada Brown"},
    {"role": "user", "content": "Where was she born?"},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose retriever ranks by its vector, and its corpus and test questions as a folder of BEIR's."""
    folder = tmp_path_factory.mktemp("mteb")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_project(links=False)
        train_stand_in(0.3)
        corpus, asked = everything(), read_questions(QUESTIONS / "test.jsonl")
        rows = [{"_id": one.id, "title": one.title, "text": one.text} for one in corpus]
        write_text(Path("task/corpus.jsonl"), "".join(json.dumps(row) + "\n" for row in rows))
        rows = [{"_id": one.id, "text": one.text} for one in asked]
        write_text(Path("task/queries.jsonl"), "".join(json.dumps(row) + "\n" for row in rows))
        judged = "".join(f"{one.id}\t{name}\t1\n" for one in asked for name in one.gold_ids)
        write_text(Path("task/qrels/test.tsv"), "query-id\tcorpus-id\tscore\n" + judged)
        yield folder


def everything() -> list[Passage]:
    passages = Passages.open(CORPUS)
    return passages.take(range(len(passages)))


def ndcg(ranked: list[str], question: Question) -> float:
    from math import log2

    gained = sum(1 / log2(rank + 1) for rank, name in enumerate(ranked[:10], 1) if name in question.gold_ids)
    return gained / sum(1 / log2(rank + 1) for rank in range(1, min(10, len(question.gold_ids)) + 1))


def test_a_conversation_is_read_as_the_trained_retriever_reads_it(place: Path) -> None:
    searcher = MtebSearch(RETRIEVER)
    searcher.index([{"id": one.id, "title": one.title, "text": one.text} for one in everything()])
    rows = [{"id": "chat", "text": CHAT}, {"id": "alone", "text": "Where was she born?"}]
    found = searcher.search(rows, top_k=5)
    with harr.Retriever.load(RETRIEVER, index=".") as retriever:
        asked = [as_search(row["id"], row["text"], statuses=retriever.statuses) for row in rows]
        ours = [
            [p.id for p in one]
            for one in retriever.search([harr.types.Search(s.question, s.query, s.hops, k=5) for s in asked])
        ]
    assert [list(found["chat"]), list(found["alone"])] == ours and ours[0] != ours[1]
    some = list(found["chat"])[::2]
    assert list(searcher.search(rows[:1], top_k=9, top_ranked={"chat": some[::-1]})["chat"]) == some


def test_a_folder_is_a_task_and_its_figure_is_ours(place: Path, capsys: Any) -> None:
    scores = run_tasks(str(RETRIEVER), ["task"], Path("results"))
    asked = read_questions(QUESTIONS / "test.jsonl")
    with harr.Retriever.load(RETRIEVER, index=".") as retriever:
        searches = [harr.types.Search(Question(one.id, one.text), one.text, k=10) for one in asked]
        found = [[p.id for p in one] for one in retriever.search(searches)]
    ours = sum(map(ndcg, found, asked)) / len(asked)
    assert scores["task"] == pytest.approx(ours, abs=1e-5) and 0 < ours < 1
    [kept] = Path("results").rglob("task.json")
    assert json.loads(kept.read_text())["scores"]["test"][0]["ndcg_at_10"] == pytest.approx(ours, abs=1e-5)
    with pytest.raises(SystemExit) as ended:
        main("mteb", "--tasks", "task", "./task", "--out", "results")
    assert not ended.value.code
    assert capsys.readouterr().out.splitlines()[-1] == f"task: {100 * ours:.2f}", "of two names, and of one task"


def test_a_task_whose_files_changed_is_evaluated_again(place: Path) -> None:
    shutil.copytree("task", "changing")
    before = run_tasks(str(RETRIEVER), ["changing"], Path("results"))["changing"]
    [kept] = Path("results").rglob("changing.json")
    written = kept.read_bytes()
    assert run_tasks(str(RETRIEVER), ["changing"], Path("results"))["changing"] == before
    assert kept.read_bytes() == written, "the same files are not played again"
    judged = Path("changing/qrels/test.tsv").read_text().splitlines()
    write_text(Path("changing/qrels/test.tsv"), "\n".join(judged[: len(judged) // 2]))
    after = run_tasks(str(RETRIEVER), ["changing"], Path("results"))["changing"]
    assert after != before and after == run_tasks(str(RETRIEVER), ["changing"], Path("new"))["changing"]


def test_what_is_no_task_or_ranks_otherwise_is_one_line(place: Path) -> None:
    with pytest.raises(CorpusError, match="--tasks nothing is neither a folder in BEIR's layout nor a task of mteb"):
        task_of("nothing")
    Path("empty").mkdir(exist_ok=True)
    with pytest.raises(CorpusError, match=r"no queries\.jsonl in empty"):
        task_of("empty")
    shutil.copytree("task", "older/task")
    judged = Path("older/task/qrels/test.tsv")
    write_text(judged, "\n".join(judged.read_text().splitlines()[:-2]))
    with pytest.raises(CorpusError, match="--tasks: two folders are called task; rename one"):
        run_tasks(str(RETRIEVER), ["task", "older/task"], Path("kept"))
    facts = json.loads((RETRIEVER / "harr.json").read_text())
    other = Path("other")
    facts["retriever"]["link_features"] = "harr_links.tables:open_links"
    write_text(other / "harr.json", json.dumps(facts))
    with pytest.raises(ModelError, match="ranks by more than a vector"):
        MtebSearch(other)
