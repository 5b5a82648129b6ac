"""Models made by harr, behind a real vLLM on the CPU (``make vllm``): they say there what they say in the process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harr_encyclopaedia.small_lm import SmallLMParams, train
from letters import nothing
from projects import make_project
from transformers import AutoTokenizer
from vllm_cpu import START, Vllm, vllm

from harr.builders.setup import open_setup
from harr.filter import try_questions
from harr.io.files import SUMS
from harr.params import Params
from harr.params.filter import FilterParams
from harr.params.generator import ServedParams, TrainedParams
from harr.params.pipeline import SearchR1Params
from harr.params.servers import ServerParams
from tasks.paths import GENERATOR, PLACES, QUESTIONS, WORK
from tasks.play import draw_test_questions, play_arms

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(4 * START)]
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
SETTINGS = {"steps": 150, "layers": 2}
SMALL = TrainedParams(kind="trained", function="harr_encyclopaedia.small_lm:train_small_lm", settings=SETTINGS)
"""A tenth of the steps of recipes/harr_small_lm.yaml and half the layers: it knows little but the format."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with an index, and a small language model that was taught to play search_r1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("project"))
        make_project(links=False)
        train(SmallLMParams(**SETTINGS), SMALL, 3, GENERATOR, WORK / "generator", nothing, 0)
        tokenizer = AutoTokenizer.from_pretrained(GENERATOR)
        tokenizer.chat_template = TEMPLATE  # it was taught without one, which vLLM needs for chats
        tokenizer.save_pretrained(GENERATOR)
        (GENERATOR / SUMS).unlink()  # a folder that was changed by hand is accepted
        yield Path.cwd()


@pytest.fixture(scope="module")
def server(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with vllm(str(project / GENERATOR), tmp_path_factory.mktemp("log") / "vllm.log", *tools) as started:
        yield started


def game(generator: TrainedParams | ServedParams) -> Params:
    """Return the project's parameters, played by this language model."""
    params = Params.load()
    untrained = params.evaluate.model_copy(update={"arms": ["bm25", "frozen", "history"]})
    pipeline = SearchR1Params(name="search_r1", template="bare")
    return params.model_copy(update={"generator": generator, "pipeline": pipeline, "evaluate": untrained})


def behind(server: Vllm) -> ServedParams:
    return ServedParams(
        kind="server",
        server=ServerParams(urls=(f"{server.url}/v1",)),
        model="tiny",
        temperature=0.0,
        max_tokens=SMALL.max_tokens,
    )


def test_stage_filter_keeps_the_same_and_every_arm_plays_the_same(project: Path, server: Vllm) -> None:
    kept, played = [], []
    for section in (SMALL, behind(server)):
        params = game(section)
        with open_setup(params, PLACES, QUESTIONS / "train.jsonl") as setup:
            filtered = FilterParams(group_size=4, batch_size=12, keep="disagreeing")
            kept.append(try_questions(filtered, setup, setup.questions, seed=0))
        questions = draw_test_questions(params, QUESTIONS / "test.jsonl")
        played.append(play_arms(params, questions, nothing, model=None))
    assert kept[0] == kept[1] and len(kept[0]) == 12
    assert played[0] == played[1]
    episodes = [episode for arm in played[1][1].values() for episode in arm]
    assert sum(bool(episode.steps) for episode in episodes) > len(episodes) / 2, "it knows the format"
