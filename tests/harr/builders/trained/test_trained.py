"""A trained retriever in an application finds what it finds within harr, from any folder; and the docs' code runs."""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from projects import KINDS, export_kinds
from sentence_transformers import SentenceTransformer

import harr
from harr.arms import ARMS, TRAINED
from harr.builders.encoder import build_encoder
from harr.builders.players import arm_params, open_players
from harr.builders.retrievers import fixed_retriever, open_corpus
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.errors import IndexMismatch, ModelError, ParamsError
from harr.io.files import SUMS, digest_of, read_json, write_json
from harr.params import Params
from harr.services.model_registry import open_registry
from harr.types import Hop, Question, Search
from tasks.paths import CORPUS, PLACES, QUESTIONS, RETRIEVER, VECTORS
from tasks.registry.mlmodel import write_mlmodel
from tasks.registry.register import place_of
from tasks.trained_runs import trained_runs

ROOT = Path(__file__).parents[4]


def searches(number: int) -> list[Search]:
    """Return first and second searches of questions."""
    from harr.corpus.passages import read_questions

    asked = read_questions(QUESTIONS / "test.jsonl")[:number]
    first = [Search(question, question.text) for question in asked]
    hops = (Hop("Who founded it?", "Ada Brown", "FOUND"),)
    return first + [Search(question, "Where was she born?", hops, k=2) for question in asked]


def ids(found: object) -> list[list[str]]:
    return [[passage.id for passage in getattr(one, "passages", one)] for one in found]  # type: ignore[attr-defined]


def test_it_finds_what_it_finds_within_harr_from_any_folder(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = searches(6)
    with open_players(Params.load(), PLACES, [], candidates="corpus") as player:
        within = player(ARMS[TRAINED], RETRIEVER).retrieve(asked)
        frozen = player(ARMS["history"], None).retrieve(asked)
    assert ids(within) != ids(frozen), "the training stood in for changed nothing"
    monkeypatch.chdir(tmp_path)
    with harr.Retriever.load(here / RETRIEVER, index=here) as retriever:
        assert ids(retriever.search(asked)) == ids(within) == ids(asyncio.run(retriever.asearch(asked)))
        found = retriever.retrieve(asked)
        assert [one.state for one in found] == [one.state for one in within]
        np.testing.assert_allclose([one.scores[0] for one in found], [one.scores[0] for one in within], rtol=1e-5)
        assert ids(retriever.search([asked[0].question.text])) == ids(within[:1])
        assert retriever.policy.link_features is not None and retriever.policy.k == 4


def test_an_agent_searches_by_a_trained_folder(here: Path) -> None:
    """It finds what the folder's retriever finds, history included; the arm alone would search only for the query."""
    asked, params = searches(6), Params.load()
    function = {"function": "harr.builders.trained:search_by_folder", "settings": {"folder": str(here / RETRIEVER)}}
    section = params.retriever.model_copy(update=function)
    with open_players(params, PLACES, [], candidates="corpus") as player:
        within = ids(player(ARMS[TRAINED], RETRIEVER).retrieve(asked))
    with open_corpus(params.index, PLACES) as corpus:
        parts = build_encoder(params.encoder), corpus, "corpus"
        assert ids(fixed_retriever(section, "dense", *parts).retrieve(asked)) == within
        with pytest.raises(ParamsError, match=r"settings of search_by_folder.*folder"):
            fixed_retriever(section.model_copy(update={"settings": {}}), "dense", *parts)


def test_every_kind_of_arm_finds_what_it_finds_within_harr(here: Path) -> None:
    """Each finds something different; a folder holds a model if its arm encodes, and only texts if not."""
    asked, found = searches(6), set()
    for kind, folder in export_kinds().items():
        params = Params.load()
        arm = params.evaluate.arm_table[kind]
        with open_players(arm_params(params, arm), PLACES, [], candidates="corpus") as player:
            within = player(arm, trained_runs(params)[kind][0] if arm.trained else None).retrieve(asked)
        with harr.Retriever.load(folder, index=".") as retriever:
            assert ids(retriever.retrieve(asked)) == ids(within), kind
        found.add(str(ids(within)))
        words_alone = kind in ("bm25", "bm25_all_answers")
        assert {path.name for path in folder.iterdir()} == {"README.md", "harr.json", SUMS} or not words_alone
        assert (folder / "modules.json").exists() != words_alone
    assert len(found) == len(KINDS)


def test_a_session_remembers_what_was_asked_and_learnt(here: Path) -> None:
    with harr.Retriever.load(RETRIEVER, index=".") as retriever:
        session = retriever.session("Where was the founder of Acme born?")
        with pytest.raises(ParamsError, match="without a search before it; call search"):
            session.learned("Ada Brown")
        first = session.search("Who founded Acme?")
        session.learned("Ada Brown")
        assert session.hops == [Hop("Who founded Acme?", "Ada Brown", "FOUND")]
        state = retriever.retrieve([session.asking("Where was she born?")])[0].state
        hops = [("Who founded Acme?", "Ada Brown")]
        assert state == harr.state(session.question.text, hops, "Where was she born?", style="lines")
        session.learned("")
        assert session.hops[-1].status == "NOT_FOUND"
        session.picked(first[:1])
        assert first[0].id not in {passage.id for passage in session.search("Who founded Acme?")}
        assert len(asyncio.run(session.asearch(k=2))) == 2


def test_the_export_alone_ranks_as_harr_does(here: Path) -> None:
    """encode_query of a state and encode_document of passages give the same nearest passages."""
    model = SentenceTransformer(str(RETRIEVER), device="cpu")
    passages = Passages.open(CORPUS)
    documents = model.encode_document(passages.contents(0, len(passages)), normalize_embeddings=True)
    kept = Vectors.of(passages, VECTORS).take(np.arange(len(passages)))
    np.testing.assert_allclose(documents, kept, atol=1e-5)
    asked = searches(6)
    states = [
        harr.state(one.question.text, one.hops, one.query, style="lines", tokenizer=model[0].tokenizer, max_tokens=64)
        for one in asked
    ]
    queries = model.encode_query(states, normalize_embeddings=True)
    with harr.Retriever.load(RETRIEVER) as retriever:
        found = retriever.policy.encode([one.state for one in retriever.retrieve(asked)])
    np.testing.assert_allclose(queries, found, atol=1e-5)


def blocks(page: str, kind: str = "python") -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def champion(here: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's retriever, registered as ``register`` does."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if not (here / "mlflow.db").exists():
        shutil.copy(empty_store, here / "mlflow.db")
        client = open_registry(here)
        run = client.create_run(client.create_experiment("harr", str(here / "mlruns/1"))).info
        client.log_artifacts(run.run_id, str(RETRIEVER), place_of("retriever"))
        write_mlmodel(here / "around", RETRIEVER)
        client.log_artifacts(run.run_id, str(here / "around"), "retriever")
        client.create_registered_model("harr-retriever")
        tags = {"model": digest_of(RETRIEVER), "kind": "retriever"}
        client.create_model_version("harr-retriever", f"{run.artifact_uri}/retriever", run.run_id, tags)
        client.set_registered_model_alias("harr-retriever", "champion", "1")
    return here


def test_a_champion_finds_what_the_folder_finds(
    champion: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = searches(8)
    with harr.Retriever.load(RETRIEVER) as retriever:
        wanted = ids(retriever.search(asked))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # first by download, then from the local copy
        with harr.Retriever.load("models:/harr-retriever@champion", index=champion) as retriever:
            assert ids(retriever.search(asked)) == wanted
    (kept,) = (champion / ".harr/registry").iterdir()
    assert kept.name.startswith("harr-retriever-1-")
    with pytest.raises(ModelError, match=r"the registry has no models:/harr-retriever@candidate"):
        harr.Retriever.load("models:/harr-retriever@candidate", index=champion)


@pytest.mark.filterwarnings("ignore::UserWarning")  # mlflow.pyfunc warns about its own types
def test_the_code_of_the_page_runs(
    champion: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # the page sets MLflow's address for the whole process; later tests have their own
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks("docs/usage.md"):
        exec(block, names)
    shown = capsys.readouterr().out.splitlines()
    at = shown.index("(1, 48)")
    assert shown[at - 1] == shown[at - 2], "the passage that the champion found"


def test_the_code_of_card_and_readme_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = (RETRIEVER / "README.md").read_text()
    code, state = (re.findall(rf"```{kind}\n(.*?)\n```", card, re.DOTALL)[0] for kind in ("python", "text"))
    names: dict[str, object] = {}
    exec(code.replace('"path/of/this/folder"', repr(str(RETRIEVER))), names)
    assert (
        names["state"]
        == state
        == ("Where was the founder of Acme born?\nWho founded Acme? Ada Brown\nQuery: Where was she born?")
    )
    assert capsys.readouterr().out.startswith("tensor([[")
    (code,) = blocks("README.md")
    exec(code, {"__name__": "readme"})
    assert len(capsys.readouterr().out.splitlines()) == Params.load().retriever.k


@pytest.mark.fault(6)
def test_what_cannot_be_loaded_is_one_line(here: Path, tmp_path: Path) -> None:
    for changed, line in (
        (None, r"holds no harr\.json; name the folder models/retriever that stage merge wrote"),
        ({"format": 1}, r"has format 1, and 3 is read, .*; run `dvc repro -f -s merge`"),
        ({"positions": "none"}, "towers of train.method pqn, .* search no corpus"),
        ({"retriever": {"kk": 3}}, r"not say how the retriever searches \(.*kk.*\); run `dvc repro -f -s merge`"),
        ({"documents": "0123"}, "reads states for vectors of encoder 0123, but those of .* were made by"),
    ):
        if changed:
            write_json(tmp_path / "harr.json", read_json(RETRIEVER / "harr.json") | changed)
        with pytest.raises((ModelError, IndexMismatch), match=line) as caught:
            harr.Retriever.load(tmp_path, index=here)
        assert "\n" not in str(caught.value)


@pytest.mark.services
def test_a_state_is_written_without_torch() -> None:
    code = "import harr, sys; harr.state('q'); harr.Search; print({'torch', 'pymilvus', 'pydantic'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "set()\n"


def test_a_question_alone_is_its_own_query() -> None:
    assert harr.state("Who?", style="sep") == "Who?"
    assert harr.state("Who?", ["A b."], style="sep") == "Who? [SEP] A b."
    assert harr.state("Who?", [Hop("What?", "It")], "Where?", style="lines") == "Who?\nWhat? It\nQuery: Where?"
    assert harr.state("Who?", query="Where?", thought="So.", style="thought").splitlines()[1] == "Reasoning: So."
    assert Question("", "Who?").text == "Who?"
