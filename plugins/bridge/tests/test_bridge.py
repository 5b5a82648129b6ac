"""`harr bridge` on a small world: another encoder reads queries for vectors that stay, and GRPO starts from it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harr_bridge.build import bridge_encoder
from harr_bridge.command import BRIDGED
from sentence_transformers import SentenceTransformer
from stages import SMOKE, WORLD, nothing, world_params
from token_table import save_table
from tokenizers import Tokenizer

from flows import cli
from harr.builders.encoder import build_encoder, query_section
from harr.builders.fit import made_for
from harr.builders.setup import open_setup
from harr.corpus.passages import Passages
from harr.corpus.vectors import Vectors
from harr.embed.encoder import Encoder
from harr.errors import CorpusError, IndexMismatch, ModelError, ParamsError
from harr.io.files import read_json, write_json
from harr.params import Params
from harr.rag.policies.encoder_adapter import add_adapter
from tasks.merge import merge_adapter
from tasks.paths import ADAPTER, CORPUS, FILTERED, PLACES, QUESTIONS, RETRIEVER, VECTORS
from tasks.train import train_policy

NO_PROMPTS: dict[str, Any] = {"query_prompt": "", "passage_prompt": ""}


def bridged_params(tiny: str, folder: Path = BRIDGED, **changed: object) -> Params:
    return world_params(tiny, retriever={**SMOKE["retriever"], "encoder": str(folder)}, **changed)


@pytest.fixture(scope="module")
def output(place: Path, tiny: str) -> Iterator[str]:
    """What was said when a static encoder of width 48 was bridged to the vectors of the world."""
    save_table(Path("static"), 48)
    lines = bridge_encoder(world_params(tiny), "static", 150, None, BRIDGED, query_prompt="ask: ", passage_prompt="")
    return "\n".join(lines)


def test_it_prints_recall_and_time_and_writes_a_stock_folder(output: str, tiny: str) -> None:
    assert f"n {WORLD['validation_questions']}: " in output and "if the new one embedded the passages again" in output
    assert "% of what embedding all 200 passages again takes" in output
    stock = SentenceTransformer(str(BRIDGED), device="cpu", local_files_only=True)
    asked = ["Where was she born?"]
    found = stock.encode_query(asked)
    assert found.shape == (1, 64)  # the width of the index, from 48
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1.0, atol=1e-5)
    ours = build_encoder(query_section(world_params(tiny).encoder, str(BRIDGED)))
    np.testing.assert_allclose(ours.encode(asked, prompt=ours.plain_prompt), found, atol=1e-5)
    assert ours.query_prompt == ours.plain_prompt == "ask: "
    assert {path.suffix for path in BRIDGED.rglob("*") if path.is_file()} <= {".json", ".safetensors", ".md", ".txt"}


def test_the_map_finds_what_the_new_encoder_alone_cannot(output: str, tiny: str) -> None:
    """Passages themselves, read as queries: the map takes most to their own vectors; unlearnt, 1 of 200 is right."""
    passages = Passages.open(CORPUS)
    encoder = build_encoder(query_section(world_params(tiny).encoder, str(BRIDGED)))
    vectors = Vectors.of(passages, VECTORS).take(np.arange(len(passages)))
    found = (encoder.encode(passages.contents(0, len(passages))) @ vectors.T).argmax(1)
    assert (found == np.arange(len(passages))).mean() > 0.5


def test_training_starts_from_it_and_merges_into_a_folder_for_the_same_vectors(output: str, tiny: str) -> None:
    FILTERED.mkdir(parents=True, exist_ok=True)
    shutil.copy(QUESTIONS / "train.jsonl", FILTERED / "questions.jsonl")
    train = {**SMOKE["train"], "lora": None, "steps": 2, "checkpoints": {"every": 2}}
    run = bridged_params(tiny, train=train)
    assert len(train_policy(run, nothing)[0]) == 2
    assert read_json(ADAPTER / "harr.json")["base"] == build_encoder(query_section(run.encoder, str(BRIDGED))).identity
    assert merge_adapter(run)["cosine_min"] > 0.9999
    assert made_for(str(RETRIEVER)) == made_for(str(BRIDGED)) == build_encoder(run.encoder).identity
    with open_setup(bridged_params(tiny, RETRIEVER), PLACES, QUESTIONS / "train.jsonl") as setup:
        assert setup.policy.encoder.name == str(RETRIEVER / "query") and setup.policy.encoder.query_prompt == "ask: "


def test_an_encoder_without_a_bridge_or_with_one_for_other_vectors_is_refused(
    output: str, place: Path, tiny: str
) -> None:
    other = shutil.copytree(BRIDGED, place / "other")
    (other / "sha256sums.txt").unlink()
    write_json(other / "harr.json", read_json(other / "harr.json") | {"documents": "0123"})
    wrong = {
        other: (IndexMismatch, r"reads states for vectors of encoder 0123, but data/vectors was made by"),
        Path("static"): (ModelError, r"retriever\.encoder static does not say whose .*`harr bridge --model static`"),
    }
    for folder, (kind, line) in wrong.items():
        with (
            pytest.raises(kind, match=line),
            open_setup(bridged_params(tiny, folder), PLACES, QUESTIONS / "train.jsonl"),
        ):
            pass
    static = world_params(tiny, encoder={"model": "static", "max_tokens": 64})
    with pytest.raises(IndexMismatch, match=r"but encoder\.model static is \w+; run `dvc repro`"):
        bridge_encoder(static, tiny, 100, None, Path("x"), **NO_PROMPTS)
    Path("strange.jsonl").write_text('{"id": "a", "question": "Who?", "answers": ["Ada"], "supporting": ["nowhere"]}\n')
    with pytest.raises(CorpusError, match="no question has gold in the index; name a file of questions"):
        bridge_encoder(world_params(tiny), "static", 100, Path("strange.jsonl"), Path("x"), **NO_PROMPTS)
    assert not Path("x").exists()
    with pytest.raises(ParamsError, match="data is there already, and no bridge; remove it, or name another folder"):
        bridge_encoder(world_params(tiny), "static", 100, None, Path("data"), **NO_PROMPTS)


def test_the_command_says_what_it_found_or_one_line(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    def bridge(*words: str) -> int:
        with pytest.raises(SystemExit) as end:
            cli.main("bridge", *words)
        return int(end.value.code or 0)

    test = str(QUESTIONS / "test.jsonl")
    assert bridge("--model", "static", "--texts", "100", "--questions", test, "--out", "again") == 0
    said = capsys.readouterr().out
    assert "n 12: " in said and "written: again; name it in retriever.encoder" in said
    assert made_for("again") == made_for(str(BRIDGED))
    assert bridge("--model", "./nowhere") == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: model folder ./nowhere does not")


def test_vectors_of_a_table_are_the_mean_of_its_rows_and_lora_has_nothing_to_train(output: str) -> None:
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
    with pytest.raises(
        ModelError, match=r"static is a table of token vectors, which LoRA cannot train; set train\.lora"
    ):
        add_adapter(Encoder("static", max_tokens=64), rank=2, alpha=2, seed=0)
