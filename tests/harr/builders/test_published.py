"""The published recipes build everything they name, up to the first request that leaves this machine.

What is missing here is replaced: the encoder by a tiny one, the data by a small set of the same kind, and Milvus by
Milvus Lite. Q-RAG's recipes send no requests, so they train for two updates; HARR's end at the first request to the
generator.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from accelerate.state import AcceleratorState
from encyclopaedia import encyclopaedia

from harr.builders.encoder import build_encoder
from harr.builders.methods import arm_method, method_of
from harr.builders.places import Places
from harr.builders.players import arm_params, open_players
from harr.builders.setup import open_setup
from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.datasets import DATASETS
from harr.datasets.download import download
from harr.embed.shards import embed_corpus
from harr.errors import ModelError
from harr.index.build import build_index
from harr.io.files import fingerprint
from harr.io.model_folder import find_folder
from harr.params import Params
from harr.params.train_facts import ValidationParams
from harr.rag.setup import Setup
from harr.services.openai_client import Service
from harr.train.batch import rate_share
from harr.train.learner import Learner

RECIPES = Path(__file__).parents[3] / "recipes"
COUNTS = {"train_questions": 8, "test_questions": 4}
QRAG = sorted(path.stem for path in RECIPES.glob("qrag_*_published.yaml"))
HARR = sorted(path.stem for path in RECIPES.glob("harr_wiki18_*.yaml"))
WORLD = encyclopaedia(passages=200, hops=[1, 2], **COUNTS)
STORIES = {"sentences": 20, "validation_questions": 4, **COUNTS}


class FirstRequest(Exception):
    """Raised where a server would be asked."""


def here(recipe: str, noise: Path, encoder: str) -> Params:
    """Return a recipe in which whatever this machine lacks is replaced."""
    values: Any = yaml.safe_load((RECIPES / f"{recipe}.yaml").read_text())
    data = values["download"]
    if recipe in HARR:
        values["download"] = WORLD
    elif "harr_ruler" in data.get("function", ""):
        values["download"] = data | {"settings": data["settings"] | STORIES | {"noise": str(noise)}}
    else:  # paragraphs, too, are played as stories
        task = data.get("settings", {}).get("task", 2)
        settings = {"task": task, "noise": str(noise), **STORIES}
        values["download"] = {"dataset": "function", "function": "harr_lengths.babilong:DATASET", "settings": settings}
    for section in ("encoder", "retriever"):
        values[section]["max_tokens"] = min(values[section]["max_tokens"], 256)
    values["encoder"]["model"] = encoder
    values["index"].pop("uri", None)
    return Params.model_validate(values)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    (folder / "book.txt").write_text(" ".join(f"Sentence number {i} is about nothing." for i in range(80)))
    return folder


@pytest.fixture(autouse=True)
def format_of_its_own() -> Iterator[None]:
    """Reset the number format: a process has only one, the recipes use two, and later tests may use another."""
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


def indexed(params: Params, root: Path) -> tuple[Places, Path]:
    """Run stages download, embed and index, once for all recipes with the same data and encoder."""
    folder = root / fingerprint([params.download.model_dump(mode="json"), params.encoder.model_dump(mode="json")])
    places, questions = Places.of_project(folder), folder / "data" / "questions"
    if not questions.exists():
        download(params.download, places.corpus, questions, folder / "work" / "download")
        passages, encoder = Passages.open(places.corpus), build_encoder(params.encoder)
        embed_corpus(passages, encoder, params.embed, places.vectors, folder / "work" / "embed")
        build_index(passages, Vectors.open(places.vectors), params.index, places.index, folder / "work" / "index")
    return places, questions


def untrained_arms_play(params: Params, places: Places, questions: Path) -> None:
    """Check that all untrained arms become players."""
    asked = list(read_questions(questions / "test.jsonl"))
    for candidates in params.evaluate.candidates:
        with open_players(params, places, asked, candidates=candidates) as player:
            assert all(player(arm, None) for arm in params.evaluate.arm_table.values() if not arm.trained)


def as_published(recipe: str, params: Params, setup: Setup, tmp_path: Path) -> None:
    """Check that the recipe's values reach encoder, data set, towers and optimizer."""
    recipe_params = Params.load(RECIPES / f"{recipe}.yaml")
    with pytest.raises(ModelError, match=recipe_params.encoder.model):
        find_folder(recipe_params.encoder.model)
    assert recipe_params.download.dataset in DATASETS
    if params.train.positions:
        assert not setup.retriever.states.normalize and setup.retriever.scale == 0.01
    AcceleratorState._reset_state(True)
    optimizer = params.train.optimizer.model_copy(update={"precision": "float32"})
    train = params.train.model_copy(update={"optimizer": optimizer, "validation": ValidationParams()})
    learner = Learner.open(train, setup, tmp_path, params.seed, kind="dry")
    (group, *_) = learner.optimizer.param_groups
    adamw = train.optimizer
    assert (group["betas"], group["eps"], group["weight_decay"]) == (adamw.betas, adamw.epsilon, adamw.weight_decay)
    assert rate_share(train, adamw.warmup_steps) == pytest.approx(1.0, abs=0.01)
    assert rate_share(train, train.steps - 1) == pytest.approx(adamw.final_rate, abs=0.01)


@pytest.mark.parametrize("recipe", QRAG)
def test_q_rag_as_published_learns_for_two_updates(recipe: str, root: Path, tiny: str, tmp_path: Path) -> None:
    params = here(recipe, root / "book.txt", tiny)
    places, questions = indexed(params, root)
    short = {"steps": 2, "questions_per_step": 2, "random_steps": 1, "validation": ValidationParams(every=1)}
    short["optimizer"] = params.train.optimizer.model_copy(update={"warmup_steps": 1})
    section = params.train.model_copy(update=short)
    with open_setup(params, places, questions / "train.jsonl", validation=questions / "validation.jsonl") as setup:
        rows = method_of(section).train(section, setup, tmp_path / "out", tmp_path / "work", lambda *_: None, 0)
        assert len(rows) == 2 and (tmp_path / "out" / "action").is_dir()
        as_published(recipe, params, setup, tmp_path / "dry")
    untrained_arms_play(params, places, questions)


@pytest.mark.parametrize("recipe", HARR)
def test_harr_as_published_stops_at_its_first_request(
    recipe: str, root: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(service: Service, attempt: object) -> NoReturn:
        raise FirstRequest(service.where)

    monkeypatch.setattr(Service, "ask", ask)
    params = here(recipe, root / "book.txt", tiny)
    places, questions = indexed(params, root)
    arms = {name: arm for name, arm in params.evaluate.arm_table.items() if arm.trained}
    assert arms
    for name, arm in arms.items():
        with open_setup(arm_params(params, arm), places, questions / "train.jsonl", history=arm.history) as setup:
            assert setup.generator is not None
            (method, section), folder = arm_method(params, name), tmp_path / name
            with pytest.raises(FirstRequest, match=r"^generator at http"):
                method.train(section, setup, folder / "out", folder / "work", lambda *_: None, 0)
    with open_setup(params, places, questions / "train.jsonl") as setup:
        as_published(recipe, params, setup, tmp_path / "dry")
    untrained_arms_play(params, places, questions)
