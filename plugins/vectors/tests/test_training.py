"""All stages over vectors of files: the encoder mixed a turned copy into every query, and a matrix takes it out."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from harr_vectors.wrap import wrap
from pretended_gpu import forget_accelerator
from stages import ROOT, run_stages

import harr
from harr.params import Params

WIDTH, PASSAGES, TRAIN, TEST = 12, 120, 80, 30


def make_files(folder: Path) -> None:
    """Write passages, questions and the vectors of both; a question's vector is its passage's, and a turned copy."""
    rng = np.random.default_rng(0)
    passages_ND = rng.normal(size=(PASSAGES, WIDTH)).astype(np.float32)
    passages_ND /= np.linalg.norm(passages_ND, axis=-1, keepdims=True)
    turn_DD = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0].astype(np.float32)
    folder.mkdir()
    np.save(folder / "passages.npy", passages_ND)
    (folder / "passages.ids").write_text("".join(f"p{n}\n" for n in range(PASSAGES)), encoding="utf-8")
    rows = [{"id": f"p{n}", "text": f"Passage number {n}."} for n in range(PASSAGES)]
    asked = [{"id": f"q{n}", "question": f"What is in {n}?", "supporting": [f"p{n}"]} for n in range(PASSAGES)]
    vectors = [
        {"id": f"q{n}", "vector": (passages_ND[n] + 1.5 * turn_DD @ passages_ND[n]).tolist()} for n in range(PASSAGES)
    ]
    files = {"passages": rows, "train": asked[:TRAIN], "validation": asked[TRAIN:-TEST], "test": asked[-TEST:]}
    for name, lines in (files | {"questions": vectors}).items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture(autouse=True)
def own_number_format() -> Iterator[None]:
    """What runs before and after it in this process trains in float32."""
    forget_accelerator()
    yield
    forget_accelerator()


def test_a_matrix_learns_what_the_passages_vectors_keep(place: Path) -> None:
    make_files(Path("mine"))
    texts = [Path("mine", f"{name}.jsonl") for name in ("passages", "train", "validation", "test")]
    wrap(Path("mine/encoder"), [Path("mine/passages.npy"), Path("mine/questions.jsonl")], texts, None)
    values = yaml.safe_load((ROOT / "recipes/own_vectors.yaml").read_text(encoding="utf-8"))
    values["train"] |= {"steps": 20, "questions_per_step": 16, "warm_start": 40, "optimizer": {"learning_rate": 0.02}}
    values["train"]["optimizer"]["precision"] = "bfloat16"
    values["retriever"] |= {"pool": PASSAGES}
    values["evaluate"] |= {"arms": ["frozen", "trained"], "seeds": 1}
    ran = run_stages(Params.model_validate(values))
    frozen, trained = (ran.summary["arms"][arm]["recall_at_2"]["mean"] for arm in ("frozen", "trained"))
    assert frozen < 0.2 and trained > 0.6
    assert ran.merged["cosine_min"] > 0.9999
    with harr.Retriever.load("models/retriever", index=".") as retriever:
        assert retriever.search(["What is in 119?"])[0][0].id == "p119"
