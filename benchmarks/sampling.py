"""Sampling in this process against transformers' own, in the same run: ``python -m benchmarks.sampling``.

Random models shaped like a small decoder with a vocabulary of 2,000 or 152,000 tokens write 32 tokens for 8 to 128
rows; weights do not affect speed. The peer is ``model.generate(do_sample=True)``, whose texts depend on the batch. Runs
alternate, and the ratio is of medians. ``bare`` is the peer at temperature 0: the cost of the model itself. Runs on a
GPU in bfloat16 if there is one, else on the CPU in float32.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from harr.rag.generation import decoding
from harr.rag.generation.local_model import LanguageModel

PROMPT, TOKENS = 16, 32
CUDA = torch.cuda.is_available()
PLACE: dict[str, Any] = {"device": "cuda" if CUDA else "cpu", "dtype": torch.bfloat16 if CUDA else torch.float32}


def language_model(vocabulary: int) -> LanguageModel:
    """Return a random model that reads and writes numbered words."""
    words = {f"w{number} ": number for number in range(vocabulary)}
    own = Tokenizer(models.WordLevel(words, unk_token="w0 "))
    own.decoder = decoders.Fuse()
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=256,
        eos_token_id=None,
        pad_token_id=0,
        bos_token_id=None,
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=own, pad_token="w0 ")
    return LanguageModel(Qwen3ForCausalLM(config).eval().to(**PLACE), tokenizer, name="random")


def uneven(rows: int, at_once: int, repeats: int) -> dict[str, float]:
    """Return tokens per CPU second for texts of 50 tokens on average, with rows combined and without."""
    model = language_model(2_000)
    model.ends = set(range(0, 2_000, 50))
    model.model.generation_config.eos_token_id = sorted(model.ends)
    torch.manual_seed(0)
    asked, keys = torch.randint(1, 2000, (rows, PROMPT)).tolist(), [str(row) for row in range(rows)]
    taken: dict[str, list[float]] = {"together": [], "apart": []}
    texts = {}
    for _ in range(repeats + 1):  # the first warms up
        for name, times in taken.items():
            decoding.MANY_ROWS = 8 if name == "together" else rows + 1
            began = time.process_time()
            texts[name] = model.generate(
                asked, [()] * rows, temperature=1.0, keys=keys, max_tokens=200, batch_size=at_once
            )
            times.append(time.process_time() - began)
    tokens = sum(map(len, texts["together"]))
    assert texts["together"] == texts["apart"]
    return {name: tokens / statistics.median(times[1:]) for name, times in taken.items()}


def seconds(run: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def compare(model: LanguageModel, rows: int, repeats: int) -> dict[str, float]:
    """Return the tokens per second of the three ways."""
    torch.manual_seed(0)
    prompts_BT = torch.randint(1, 2000, (rows, PROMPT))
    asked, keys = prompts_BT.tolist(), [str(row) for row in range(rows)]

    def ours() -> None:
        stops = [("never said",)] * rows
        model.generate(asked, stops, temperature=1.0, keys=keys, max_tokens=TOKENS, batch_size=rows)

    def theirs(**sampling: Any) -> None:
        with torch.inference_mode():
            asked_BT = prompts_BT.to(PLACE["device"])
            tokens_BT = model.model.generate(
                asked_BT, max_new_tokens=TOKENS, pad_token_id=0, eos_token_id=None, **sampling
            )
            tokens_BT.tolist()  # waits for a GPU

    ways = {
        "harr": ours,
        "transformers": lambda: theirs(do_sample=True, temperature=1.0, top_k=0, top_p=1.0),
        "bare": lambda: theirs(do_sample=False),
    }
    for run in ways.values():
        run()
    taken = {name: [] for name in ways}
    for _ in range(repeats):
        for name, run in ways.items():
            taken[name].append(seconds(run))
    return {name: rows * TOKENS / statistics.median(times) for name, times in taken.items()}


def main() -> None:
    """Print tokens per second and the ratio to the peer."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--vocabularies", type=int, nargs="+", default=[2_000, 152_000])
    options.add_argument("--rows", type=int, nargs="+", default=[8, 32, 128])
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--uneven", action="store_true", help="texts of uneven length, 128 rows in batches of 32")
    given = options.parse_args()
    if given.uneven:
        print({name: round(rate) for name, rate in uneven(128, 32, given.repeats).items()})
        return
    print(("{:>13}" * 6).format("vocabulary", "rows", "harr", "transformers", "bare", "ratio"))
    for vocabulary in given.vocabularies:
        model = language_model(vocabulary)
        for rows in given.rows:
            rate = compare(model, rows, given.repeats)
            cells = "".join(f"{rate[name]:13,.0f}" for name in ("harr", "transformers", "bare"))
            print(f"{vocabulary:13,}{rows:13}{cells}{rate['harr'] / rate['transformers']:13.2f}", flush=True)


if __name__ == "__main__":
    main()
