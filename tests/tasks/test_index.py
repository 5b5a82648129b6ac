"""Stage index decides whether to train again, and writes its decision where DVC compares it."""

from dataclasses import replace
from pathlib import Path

from digests import digests
from stages import world_params

from flows.status import _since_training
from harr.corpus.passages import Passages, write_passages
from harr.io.files import publish, read_json, write_json
from harr.types import Passage
from tasks.evaluation_record import corpus_facts, describe_corpus
from tasks.index import decide_training
from tasks.paths import CORPUS, METRICS, TRAINED_ON, VECTORS


def change(kept: int, new: int = 1) -> None:
    """Replace the corpus by its first ``kept`` passages, the last one changed, with some new ones before them."""
    passages = Passages.open(CORPUS)
    before = passages.take(range(kept))
    made = [Passage(f"new{number}", f"A lake {number}.") for number in range(new)]
    write_passages([*made, *before[:-1], replace(before[-1], text="Dry.")], Path("work/corpus"))
    publish(Path("work/corpus"), CORPUS)
    corpus = {"corpus": Passages.open(CORPUS).identity, "rows": kept + new}
    (VECTORS / "sha256sums.txt").unlink(missing_ok=True)
    write_json(VECTORS / "manifest.json", read_json(VECTORS / "manifest.json") | corpus)


def test_a_few_passages_do_not_train_again_and_many_do(place: Path, tiny: str) -> None:
    """The world's corpus is recorded as trained on."""
    params = world_params(tiny)
    noted, rows = digests(TRAINED_ON), len(Passages.open(CORPUS))
    assert decide_training(params)["trains_again"] == 0.0 and digests(TRAINED_ON) == noted
    change(rows - 2)
    figures = decide_training(params)
    assert figures == {
        "trains_again": 0.0,
        "since_training_passages": rows,
        "since_training_added": 1.0,
        "since_training_removed": 2.0,
        "since_training_changed": 1.0,
        "since_training_share": 4 / rows,
    }
    assert digests(TRAINED_ON) == noted, "so that DVC runs nothing that depends on it"
    write_json(METRICS / "index.json", figures)
    sentence = f"1 added, 2 removed, 1 changed of {rows:,} passages since training ({400 / rows:.1f} %); trained again"
    assert _since_training(Path(), 0.1).startswith(f"{sentence} above 10 % (index.retrain_after)")
    assert f"{rows - 1:,} passages); trained on " in describe_corpus(corpus_facts())
    strict = params.model_copy(update={"index": params.index.model_copy(update={"retrain_after": 0.0})})
    assert decide_training(strict)["trains_again"] == 1.0 and digests(TRAINED_ON) != noted
    assert describe_corpus(corpus_facts()).endswith("on which it was trained")
    change(rows // 2)
    assert decide_training(params)["trains_again"] == 1.0
