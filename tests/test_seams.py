"""A package outside the tree brings one of everything; a run with all of it ends, with nothing in harr touched."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from letters import save_letters
from stages import ROOT, nothing, run_stages
from tiny import tiny_encoder

from harr.builders.methods import Method, method_of
from harr.errors import ParamsError
from harr.io.files import read_json, read_jsonl, write_text
from harr.params import Params
from tasks.audits import audit_functions, play_audits
from tasks.download import corpus_frame, download_corpus, questions_frame
from tasks.filter import filter_training_questions
from tasks.index import index_passages
from tasks.paths import CORPUS, EVALUATION, REPORT
from tasks.train import summary, train_policy

PACKAGE = {
    "data": """
from harr.datasets.source import Source
from harr.types import Passage, Question

TOWNS = ("Ashford", "Bath", "Cork", "Dover", "Esk", "Fowey", "Ghent", "Hull")


def load(people: int = 8) -> Source:
    named = [(f"p{number}", f"Person {number}", TOWNS[number % len(TOWNS)]) for number in range(people)]
    questions = [Question(f"q-{id}", f"Where was {name} born?", (town,), (id,)) for id, name, town in named]
    passages = (Passage(id, f"{name} was born in {town}.", name) for id, name, town in named)
    return Source(passages, train=questions[: people // 2], test=questions[people // 2 :], figures={"people": people})
""",
    "search": """
from collections.abc import Sequence

from harr.builders.retrievers import RetrieverInputs
from harr.types import Passage, Retrieval, Search


def ask(query: str, k: int) -> list[Passage]:
    return [Passage("w1", "Person 5 was born in Fowey.", "Person 5")][:k]


class Retriever:
    def __init__(self, inputs: RetrieverInputs) -> None:
        self.found = tuple(inputs.passages.take(range(inputs.settings["first"])))

    def retrieve(self, searches: Sequence[Search]) -> list[Retrieval]:
        return [Retrieval(self.found) for _ in searches]
""",
    "places": """
from pathlib import Path

from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.index.build import build_index
from harr.index.corpus import OtherIndex
from harr.index.passage_index import PassageIndex
from harr.params.index import IndexParams


def build(passages: Passages, vectors: Vectors, params: IndexParams, out: Path, work: Path) -> dict[str, float]:
    return build_index(passages, vectors, params, out, work) | {"floors": float(params.settings["floors"])}


def reopen(passages: Passages, vectors: Vectors, params: IndexParams, out: Path) -> PassageIndex:
    return PassageIndex.open(out, params, identity=vectors.identity)


INDEX = OtherIndex(build, reopen)
""",
    "learn": """
from pathlib import Path
from typing import Any

from harr.builders.methods import Method
from harr.io.files import write_json
from harr.params.train import FunctionTrainParams
from harr.rag.generation.local_model import load_model
from harr.rag.rollout import play
from harr.rag.setup import Setup
from harr.types import Log

Rows = list[dict[str, Any]]


def train(params: FunctionTrainParams, setup: Setup, out: Path, work: Path, log: Log, seed: int) -> Rows:
    assert setup.sample is not None
    rows = []
    for step in range(params.steps):
        episodes = play(setup.questions, setup.pipeline, setup.retriever, setup.sample(params.temperature))
        rewards = [setup.reward(episode) for episode in episodes]
        rows.append({"step": step, "reward_mean": sum(rewards) / len(rewards), "zero_std_share": 0.0, "seconds": 0.1})
        log(step, rows[-1])
    model, tokenizer = load_model(setup.language_model)
    model.get_input_embeddings().weight.data *= params.settings["grow"]
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    write_json(out / "harr.json", {"base": "b", "base_model": "letters"})
    return rows


METHOD = Method(train, describe=lambda params: {"method": "growth", "grow": str(params.settings["grow"])})
""",
    "look": """
from harr.evaluate.audit import Audit


def words(params, rows, episodes, *, most):
    long = [e.question.id for e in episodes["trained"] if len((e.answer or "").split()) > most]
    alarms = {"long": f"long: {len(long)} answers have more than {most} words"}
    return Audit(alarms, {"long": float(len(long))}, {"long": long}, "Words", "Too long.", [{"what": "long", "n": "6"}])


def silent(params, rows, episodes):
    return None
""",
}
PARAMS: dict[str, Any] = {
    "download": {"dataset": "function", "function": "mine.data:load", "settings": {"people": 12}},
    "encoder": {"model": tiny_encoder(), "max_tokens": 64},
    "index": {"function": "mine.places:INDEX", "settings": {"floors": 2}},
    "retriever": {"k": 1, "pool": 4},
    "sources": {"Web": {"kind": "function", "function": "mine.search:ask"}},
    "pipeline": {"name": "function", "function": "mine.agent:play", "settings": {"searches": 1}},
    "generator": {"kind": "local", "model": "letters", "max_tokens": 8},
    "reward": {"terms": {"answer_f1": 1.0, "mine.reward:grounded": 0.5}},
    "filter": {"keep": "all"},
    "train": {
        "method": "function",
        "function": "mine.learn:METHOD",
        "learns": "language_model",
        "steps": 2,
        "max_tokens": 8,
        "settings": {"grow": 1.5},
    },
    "evaluate": {
        "arms": ["base", {"name": "mine", "retriever": "mine.search:Retriever", "settings": {"first": 2}}, "trained"],
        "audits": {"mine.look:words": {"most": -1}},
        "seeds": 1,
        "resamples": 50,
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder with the package ``mine``; its pipeline and reward are those of examples/."""
    folder = tmp_path_factory.mktemp("outside")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for name, code in PACKAGE.items():
            write_text(Path(f"mine/{name}.py"), code)
        shutil.copy(ROOT / "examples/new_pipeline.py", "mine/agent.py")
        shutil.copy(ROOT / "examples/new_reward.py", "mine/reward.py")
        save_letters(Path("letters"), spread=0.5, room=2048, printable=True)
        yield folder


def test_a_run_of_everything_that_another_package_brings_ends(place: Path) -> None:
    params = Params.model_validate(PARAMS)
    ran = run_stages(params)
    assert len(corpus_frame()) == 12 and len(questions_frame(params)) == 12
    indexed = read_json(Path("metrics/index.json"))
    assert indexed["floors"] == 2.0 and indexed["recall_at_pool"] == 1.0 and indexed["recall_queries"] == 6.0
    assert summary(ran.history)["steps"] == 2.0
    assert ran.arms["runs"] == 0.0 and ran.merged["logit_difference_max"] < 1e-3
    found = read_json(Path("metrics/evaluate.json"))["arms"]
    assert set(found) == {"base", "mine", "trained"} and all("mine.reward:grounded" in one for one in found.values())
    passages = {arm: {p.id for one in played for p in one.retrieved} for arm, played in ran.episodes.items()}
    assert passages == {"base": {"w1"}, "mine": {"p0", "p1"}, "trained": {"w1"}}, "an arm searches where it says"
    assert [len(episode.turns) for episode in ran.episodes["trained"]] == [2] * 6, "a query and an answer"
    assert "growth; grow 1.5" in REPORT.read_text() and read_jsonl(CORPUS.parent / "filtered/questions.jsonl")
    assert read_json(Path("models/language_model/harr.json"))["training"]["method"] == "growth"
    audit = read_json(EVALUATION / "audits.json")["mine.look:words"]
    assert len(audit["facts"]["long"]) == 6 and "class=flag>long</th>" in REPORT.read_text()


def test_a_function_that_trains_will_do_as_a_method(place: Path) -> None:
    section = PARAMS["train"] | {"function": "mine.learn:train"}
    found = method_of(Params.model_validate(PARAMS | {"train": section}).train)
    assert isinstance(found, Method) and found.train.__module__ == "mine.learn" and found.figure == "reward"


@pytest.mark.parametrize(
    ("section", "value", "line"),
    [
        ("download", "mine.data:TOWNS", "download.function: mine.data:TOWNS is no function; give one that returns a S"),
        ("download", "builtins:dict", "download.function: builtins:dict returned dict; return a Source"),
        ("pipeline", "mine.data:load", "pipeline.function: mine.data:load cannot be called so .got an unexpected key"),
        ("pipeline", "builtins:dict", "pipeline.function: builtins:dict yields nothing; give one that takes a Quest"),
        ("pipeline", "mine.agents:play", "pipeline.function: mine.agents:play cannot be imported"),
        ("index", "mine.data:load", "index.function: mine.data:load is function; give an OtherIndex"),
        ("train", "mine.data:TOWNS", "train.function: mine.data:TOWNS is tuple; give a Method"),
        ("train", "mine.learn:NONE", "train.function: mine.learn:NONE cannot be imported"),
    ],
)
def test_what_does_not_fit_is_one_line(place: Path, section: str, value: str, line: str) -> None:
    params = Params.model_validate(PARAMS | {section: PARAMS[section] | {"function": value}})
    stages = {"download": download_corpus, "index": index_passages, "pipeline": filter_training_questions}
    task = stages.get(section, train_policy)
    with pytest.raises(ParamsError, match=line) as error:
        task(params) if section in ("download", "index") else task(params, nothing)
    assert "\n" not in str(error.value)


def test_an_audit_that_does_not_fit_is_one_line(place: Path) -> None:
    def asking(audits: dict[str, Any]) -> Params:
        return Params.model_validate(PARAMS | {"evaluate": PARAMS["evaluate"] | {"audits": audits}})

    for audits, line in (
        ({"mine.look:none": {}}, "evaluate.audits: mine.look:none cannot be imported"),
        ({"mine.look:words": {}}, "evaluate.audits: mine.look:words cannot be called so .missing a required"),
    ):
        with pytest.raises(ParamsError, match=line):
            audit_functions(asking(audits))
    with pytest.raises(ParamsError, match=r"mine\.look:silent returned NoneType; give one that takes the parameters"):
        play_audits(asking({"mine.look:silent": {}}), {}, {}, nothing)
