"""Change one byte of an artifact, open it, and put the byte back: ``python -m benchmarks.corrupt --cases 10000``.

Every kind of artifact is written, in a small size, and opened by the code that does so in the stages. In one case of
ten a byte is removed instead. The opening code must name the damaged file.
"""

import argparse
import contextlib
import io
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
TEXT = "Town {} has a river and {} bridges."


@dataclass(frozen=True)
class Kind:
    """A kind of artifact: its folder, and what opens it (raises an error or returns None if it is damaged)."""

    folder: Path
    open: Callable[[], Any]


def kinds(root: Path) -> dict[str, Kind]:
    """Write one artifact of each kind."""
    import torch
    from transformers import BertConfig, BertModel, Qwen3Config, Qwen3ForCausalLM

    from harr.compute.checkpoints import Checkpoints
    from harr.corpus.passages import Passages, write_passages, write_questions
    from harr.corpus.vectors import Vectors
    from harr.embed.encoder import Encoder
    from harr.embed.shards import embed_corpus
    from harr.index.build import build_index
    from harr.io.files import publish, write_text
    from harr.io.model_folder import PACKAGED
    from harr.params.embed import EmbedParams
    from harr.params.index import IndexParams
    from harr.rag.policies.encoder_adapter import add_adapter, save_adapter
    from harr.types import Passage, Question

    def published(name: str, fill: Callable[[Path], object]) -> Path:
        draft = root / "draft" / name
        draft.mkdir(parents=True)
        fill(draft)
        publish(draft, root / name)
        return root / name

    passages = [Passage(f"p{i}", TEXT.format(i, i + 1), f"Town {i}") for i in range(48)]
    asked = [Question(f"q{i}", f"How many bridges has Town {i}?", (str(i + 1),), (f"p{i}",)) for i in range(24)]
    corpus = published("corpus", lambda draft: write_passages(passages, draft))
    published("questions", lambda draft: write_questions(asked, draft / "test.jsonl"))
    published("filtered", lambda draft: write_questions(asked, draft / "questions.jsonl"))
    stored, encoder = Passages.open(corpus), Encoder(PACKAGED, max_tokens=32)
    embed_corpus(stored, encoder, EmbedParams(dtype="float32", shard_size=12), root / "vectors", root / "work/embed")
    vectors = Vectors.open(root / "vectors")
    build_index(stored, vectors, IndexParams(), root / "index", root / "work/index")
    adapter = add_adapter(encoder, rank=1, alpha=2, seed=0)
    published("adapter", lambda draft: save_adapter(adapter, encoder, draft))
    small: dict[str, Any] = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    retriever = BertModel(BertConfig(**small, num_hidden_layers=1))
    published("retriever", lambda draft: retriever.save_pretrained(draft))
    language_model = Qwen3ForCausalLM(Qwen3Config(**small, num_hidden_layers=1, num_key_value_heads=2, head_dim=8))
    published("language_model", lambda draft: language_model.save_pretrained(draft))
    rows = "".join(f'{{"id": "q{i}", "recall": 1.0}}\n' for i in range(24))
    published("evaluation", lambda draft: write_text(draft / "trained.jsonl", rows))
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    Checkpoints(root / "train").save(1, layer, None, [optimizer], [{"loss": 1.0}], best=1)
    return openers(root)


def openers(root: Path) -> dict[str, Kind]:
    """Return every kind with what opens it in the stages."""
    from harr.corpus.passages import Passages, read_questions
    from harr.corpus.vectors import Vectors
    from harr.embed.encoder import Encoder
    from harr.index.passage_index import PassageIndex
    from harr.io.files import check_sums, read_jsonl
    from harr.io.model_folder import PACKAGED, find_folder
    from harr.params.index import IndexParams
    from harr.rag.generation.local_model import load_model
    from harr.rag.policies.encoder_adapter import load_adapter

    def rows_of_evaluation() -> object:
        check_sums(root / "evaluation", "dvc repro")  # as stage merge does before it registers them
        return read_jsonl(root / "evaluation/trained.jsonl")

    def checkpoint() -> object:
        check_sums(root / "train/checkpoint-000001", "the same command again")  # as newest_sound, which removes it
        return True

    def index() -> object:
        PassageIndex.open(root / "index", IndexParams(), identity=identity).close()
        return True

    identity, encoder = Vectors.open(root / "vectors").identity, Encoder(PACKAGED, max_tokens=32)
    opens: dict[str, Callable[[], Any]] = {
        "corpus": lambda: Passages.open(root / "corpus"),
        "questions": lambda: read_questions(root / "questions/test.jsonl"),
        "vectors": lambda: Vectors.open(root / "vectors"),
        "index": index,
        "filtered": lambda: read_questions(root / "filtered/questions.jsonl"),
        "adapter": lambda: load_adapter(encoder, root / "adapter") or True,
        "train/checkpoint-000001": checkpoint,
        "retriever": lambda: find_folder(str(root / "retriever")),
        "language_model": lambda: load_model(str(root / "language_model")),
        "evaluation": rows_of_evaluation,
    }
    return {name: Kind(root / name, action) for name, action in opens.items()}


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return data with one byte changed, or one time in ten missing."""
    place = draw.randrange(len(data))
    if draw.random() < 0.1:
        return data[:place] + data[place + 1 :]
    return data[:place] + bytes([data[place] ^ draw.randint(1, 255)]) + data[place + 1 :]


def found(kind: Kind, path: Path) -> bool:
    """Return whether opening it reports this file as damaged; the list of hashes stands for every file in it."""
    from harr.errors import HarrError

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return kind.open() is None
    except HarrError as error:
        return path.name in str(error) or path.name == "sha256sums.txt"


def main() -> int:
    """Print a line per kind; exit with 1 if damage was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, cases, hits, began = random.Random(options.seed), Counter[str](), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        all_kinds = kinds(Path(folder))
        files = {
            name: [path for path in sorted(kind.folder.rglob("*")) if path.is_file() and path.stat().st_size]
            for name, kind in all_kinds.items()
        }
        for number in range(options.cases):
            name = list(all_kinds)[number % len(all_kinds)]
            path = draw.choice(files[name])
            whole = path.read_bytes()
            changed = damaged(whole, draw)
            path.write_bytes(changed)
            hit = found(all_kinds[name], path)
            path.write_bytes(whole)
            cases[name] += 1
            hits[name] += hit
            if not hit:
                place = next((i for i, (a, b) in enumerate(zip(whole, changed, strict=False)) if a != b), len(changed))
                print(f"MISSED {name}: {path.name} at byte {place} of {len(whole)}")
        whole_again = {name: name == "language_model" or kind.open() is not None for name, kind in all_kinds.items()}
    for name in cases:
        print(f"{name}: {hits[name]} of {cases[name]} found, among {len(files[name])} files")
    print(f"all: {sum(hits.values())} of {sum(cases.values())} found")
    print(f"{time.monotonic() - began:.0f} s")
    return int(hits != cases or not all(whole_again.values()))


if __name__ == "__main__":
    sys.exit(main())
