"""A run of all stages: what each leaves, and that evaluation, registry, page and `harr ask` use one model."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harr_local.ask import ask
from places import furnish
from safetensors.torch import load_file
from stages import ROOT, SMOKE, Ran, run_stages, world_params

from harr.corpus.passages import Passages, read_questions
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.errors import PromotionRefused
from harr.io.files import read_json, read_jsonl, sha256, write_text
from harr.params import Params
from tasks.download import corpus_frame, questions_frame
from tasks.embed import vectors_frame
from tasks.evaluate import evaluate_file, evaluation_frame
from tasks.evaluation_record import check_played
from tasks.filter_outputs import filtered_frame
from tasks.index import index_frame
from tasks.merge import register_model
from tasks.paths import ADAPTER, ARMS, CORPUS, EVALUATION, FILTERED, QUESTIONS, REPORT, RETRIEVER, VECTORS
from tasks.registry import history
from tasks.registry.promote import promote
from tasks.tracking.client import open_client
from tasks.tracking.run import tracked_run
from tasks.trained_runs import trained_runs

MINE = {"name": "mine", "retriever": "docs_arm:Retriever", "settings": {"pool": 20}}
SECTIONS: dict[str, Any] = {
    "filter": {"group_size": 4, "target": 8, "batch_size": 12},
    "train": SMOKE["train"]
    | {"steps": 2, "questions_per_step": 2, "checkpoints": {"every": 1}, "validation": {"every": 1}},
    "evaluate": {
        "arms": ["bm25", "frozen", "history", "rl_no_history", "infonce", MINE, "trained"],
        "seeds": 2,
        "resamples": 50,
        "candidates": ["corpus"],
        "audits": {"harr_audits.occlusion:occlude": {}},
    },
    "tracking": SMOKE["tracking"] | {"min_questions": 5},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, world: Path, tiny: str, empty_store: Path) -> Iterator[Ran]:
    """The run, in the folder where it was made; one arm is that of docs/arms.md."""
    folder = tmp_path_factory.mktemp("ran")
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/arms.md").read_text(), re.DOTALL)
    assert code
    with pytest.MonkeyPatch.context() as patch:
        furnish(folder, patch)
        patch.setenv("HARR_EXECUTION", "one")
        shutil.copy(empty_store, "mlflow.db")
        write_text(Path("docs_arm.py"), code[1])
        patch.syspath_prepend(folder)
        yield run_stages(world_params(tiny, **SECTIONS), world)


def test_every_run_learns_from_what_the_filter_kept(ran: Ran) -> None:
    kept = filtered_frame()
    assert [q.id for q in read_questions(FILTERED / "questions.jsonl")] and len(kept) == ran.filtered["kept"] > 0
    assert set(kept["reason"]) == {"rollouts disagree"} and (kept["reward_std"] > 0).all()
    assert len(ran.history) == 2 and all("validation" in row for row in ran.history)
    assert len(read_jsonl(Path("metrics/training_stats.jsonl"))) == 2
    assert ran.arms["runs"] == 5.0 and ran.arms["steps"] == 10.0
    runs = trained_runs(ran.params)
    assert runs["trained"] == [ADAPTER, ARMS / "trained-1"] and set(runs) == {"rl_no_history", "infonce", "trained"}
    weights = {folder: load_file(folder / "adapter_model.safetensors") for own in runs.values() for folder in own}
    moved = [torch.cat([own.flatten() for name, own in one.items() if "lora_B" in name]) for one in weights.values()]
    assert all(one.any() for one in moved) and not any(torch.equal(moved[0], other) for other in moved[1:])


def test_tables_for_the_expectations_cover_all_that_is_there(ran: Ran) -> None:
    assert corpus_frame()["id"].nunique() == len(corpus_frame()) == 200
    asked = questions_frame(ran.params)
    assert asked["split"].value_counts().to_dict() == {"train": 24, "test": 12, "validation": 6}
    assert not asked["missing_gold"].any() and not asked["in_other_split"].any() and (asked["targets"] >= 2).all()
    assert vectors_frame()["norm"].to_numpy() == pytest.approx(np.ones(200), abs=1e-3)
    (counted,) = index_frame(read_json(Path("metrics/index.json"))).to_dict("records")
    assert [counted[name] for name in ("indexed", "searchable", "vectors", "passages")] == [200] * 4
    table = evaluation_frame(ran.rows)
    assert len(table) == 10 * 12 and {"bm25-0", "trained-0", "trained-1"} < set(table["arm"])
    assert not table["questions_missing"].any() and table["recall"].between(0, 1).all()
    short = evaluation_frame({"frozen": [[{"id": "q1"}]], "trained": [[{"id": "q1"}, {"id": "q2"}]]})
    assert list(short["questions_missing"]) == [1, 0, 0] and short["recall"].isna().all()


def mean(arm: str, metric: str = "recall") -> float:
    """Return an arm's mean over all questions and seeds, from the rows on disk."""
    files = [EVALUATION / f"{arm}.jsonl", *EVALUATION.glob(f"{arm}-1.jsonl")]
    return float(np.mean([[row[metric] for row in read_jsonl(path)] for path in files]))


def test_figures_are_those_of_the_rows(ran: Ran) -> None:
    seeds = {"bm25": 1, "frozen": 1, "history": 1, "rl_no_history": 2, "infonce": 2, "mine": 1, "trained": 2}
    assert {arm: len(by_seed) for arm, by_seed in ran.rows.items()} == seeds
    figures, contrasts = read_json(Path("metrics/evaluate.json")), read_json(Path("metrics/contrasts.json"))
    assert set(figures["arms"]) == {*seeds, "best_by_kind"}
    for arm, metrics in [(arm, figures["arms"][arm]) for arm in seeds]:
        for metric in ("recall", "answer_f1"):
            assert metrics[metric]["mean"] == pytest.approx(mean(arm, metric), abs=1e-5) and metrics[metric]["n"] == 12
        assert len(metrics["recall"]["seeds"]) == (seeds[arm] if seeds[arm] > 1 else 0)
        if arm != "frozen":
            gain = figures["paired"][arm]["recall"]["gain"]
            assert gain == pytest.approx(mean(arm) - mean("frozen"), abs=1e-5)
        if arm != "trained":
            gain = contrasts[f"trained-{arm}"]["recall"]["gain"]
            assert gain == pytest.approx(mean("trained") - mean(arm), abs=1e-5)
    occluded = figures["audits"]["harr_audits.occlusion:occlude"]["facts"]
    assert list(occluded) == ["question", "history", "query"]
    for part in occluded.values():
        assert part["recall"]["cost"] == pytest.approx(mean("trained") - part["recall"]["mean"], abs=1e-5)
    assert read_json(Path("metrics/headline.json"))["answer_f1"] == pytest.approx(
        mean("trained", "answer_f1"), abs=1e-5
    )
    page = REPORT.read_text()
    assert "is the retriever docs_arm:Retriever" in page and "rl_no_history" in page
    assert "mine" in Path("plots/arms.svg").read_text() and "mine" in Path("plots/arms.csv").read_text()


def test_the_untrained_arm_finds_what_is_nearest_and_another_s_retriever_k_passages(ran: Ran, tiny: str) -> None:
    passages, table_ND = Passages.open(CORPUS), Vectors.open(VECTORS).take(np.arange(200))
    encoder = Encoder(tiny, max_tokens=64)
    for episode in ran.episodes["frozen"]:
        step = episode.steps[0]
        assert step.retrieval.state == f"Query: {step.search.query}"
        best_N = np.argsort(-(table_ND @ encoder.encode([step.retrieval.state])[0]), kind="stable")[:3]
        assert [p.id for p in step.retrieval.passages] == [p.id for p in passages.take(best_N.tolist())]
    assert all(len(step.retrieval.passages) == 3 for episode in ran.episodes["mine"] for step in episode.steps)


def test_what_was_merged_searches_as_what_was_evaluated(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran.merged["cosine_min"] > 0.9999 and ran.merged["document_cosine_min"] > 0.9999
    assert read_json(RETRIEVER / "harr.json")["adapter"] == check_played(ran.params)["model"]
    assert read_json(Path("models/language_model/untrained.json"))["generator"]["kind"] == "function"
    wanted = ran.episodes["trained"][0]
    for model in (None, ADAPTER):
        found = ask(ran.params, wanted.question.text, model)
        assert [p.id for p in found.retrieved] == [p.id for p in wanted.retrieved] and found.answer == wanted.answer
    evaluate_file(ran.params, QUESTIONS / "test.jsonl", Path("out.json"), RETRIEVER, ["mine", "trained"])
    arms = read_json(Path("out.json"))["arms"]
    first = np.mean([row["recall"] for row in read_jsonl(EVALUATION / "trained.jsonl")])
    assert set(arms) == {"mine", "trained"} and arms["trained"]["recall"]["mean"] == pytest.approx(first, abs=1e-5)
    assert "\nmine " in capsys.readouterr().out


def test_a_version_is_of_what_lies_here_and_a_champion_is_played_again_on_it(ran: Ran) -> None:
    params, client, name = ran.params, open_client(ran.params), "harr-smoke"

    def registered(params: Params) -> Any:
        with tracked_run("merge", params) as run:
            return client.get_model_version(name, register_model(run, params))

    first = registered(params)
    assert int(first.version) == 1 and first.tags["figure"].startswith(
        f"trained: answer F1 {100 * mean('trained', 'answer_f1'):.1f} ["
    )
    assert first.tags["corpus"] == Passages.open(CORPUS).identity
    assert first.tags["index"] == read_json(VECTORS / "manifest.json")["identity"]
    assert first.tags["questions"] == sha256(QUESTIONS / "test.jsonl")
    with pytest.raises(PromotionRefused, match=r"against its own arm frozen .*: gain: found answer F1"):
        promote(params, arm="trained")
    history.move(client, name, "1", [])
    loose = params.model_copy(update={"tracking": params.tracking.model_copy(update={"min_questions": 4})})
    second = registered(loose)
    assert int(second.version) == 2, "other thresholds"
    with pytest.raises(PromotionRefused, match=r"version 2 was played on another game than is here"):
        promote(loose.model_copy(update={"seed": 1}), arm="trained", again=True)
    with pytest.raises(PromotionRefused, match=r"against champion 1: gain: found answer F1 \+0\.0"):
        promote(loose, arm="trained", again=True)
    rows = read_jsonl(Path(client.download_artifacts(second.run_id, "gate/champion-1.jsonl")))
    for again, row in zip(rows, read_jsonl(EVALUATION / "trained.jsonl"), strict=True):
        assert [again[one] for one in ("id", "recall", "answer_f1")] == [
            row[one] for one in ("id", "recall", "answer_f1")
        ]
    page = Path(client.download_artifacts(second.run_id, "promotion.html")).read_text()
    assert "champion 1 was played again on it" in page
