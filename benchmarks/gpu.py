"""How close a machine comes to its limit: ``python -m benchmarks.gpu [--shapes minilm qwen3-0.6b] [--tokens 64]``.

Runs on a GPU if there is one, else on the CPU; for one thread set ``OMP_NUM_THREADS=1``. Weights are random, since
speed does not depend on them. The peak is what this machine's own bfloat16 products of the model's shape reach. A row
gives tokens per second and the share of the peak for

- reading: a forward pass in bfloat16 without gradient, as the corpus is embedded;
- learning: forward and backward of LoRA (rank 32, all linear layers) in bfloat16, whose limit is twice the work of
  reading, and the share of each phase of the step: forward, backward, optimizer.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, BertConfig, PretrainedConfig, Qwen3Config

from harr.compute.attention import prepare_for_bfloat16

QWEN3: dict[str, Any] = {"vocab_size": 151_936, "head_dim": 128, "num_key_value_heads": 8, "use_cache": False}
SHAPES: dict[str, PretrainedConfig] = {
    "minilm": BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
    "qwen3-0.6b": Qwen3Config(
        hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, intermediate_size=3072, **QWEN3
    ),
    "qwen3-4b": Qwen3Config(
        hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, intermediate_size=9728, **QWEN3
    ),
}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the fewest wall-clock seconds of some work, including the device's, after a warm-up."""
    found = []
    for _ in range(times + 1):
        wait()
        began = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - began)
    return min(found[1:])


def wait() -> None:
    """Wait for the device to finish."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def linear_weights(model: torch.nn.Module) -> int:
    """Return the number of weights that are multiplied with every token."""
    layers = (part for name, part in model.named_modules() if "pooler" not in name)
    return sum(part.weight.numel() for part in layers if isinstance(part, torch.nn.Linear))


def peak(config: PretrainedConfig, rows: int, times: int) -> float:
    """Return the floating point operations per second of a product of the model's widest layer."""
    wide = torch.randn(config.intermediate_size, config.hidden_size, device=DEVICE, dtype=torch.bfloat16)
    read = torch.randn(rows, config.hidden_size, device=DEVICE, dtype=torch.bfloat16)
    return 2.0 * read.numel() * len(wide) / seconds(lambda: torch.nn.functional.linear(read, wide), 5 * times)


def measure(name: str, texts: int, tokens: int, times: int) -> None:
    """Print the rows of one shape."""
    config = SHAPES[name]
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = AutoModel.from_config(config, dtype=torch.bfloat16).eval()
        ids_BT = torch.randint(1000, 2000, (texts, tokens))
    work, best = 2.0 * linear_weights(model) * ids_BT.numel(), peak(config, ids_BT.numel(), times)
    with torch.inference_mode():
        print_row(name, "reading", ids_BT.numel(), seconds(lambda: model(input_ids=ids_BT), times), work, best)
    lora = LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", exclude_modules=r".*pooler.*")
    learner = get_peft_model(model, lora)
    prepare_for_bfloat16(learner)
    learnt = [weight for weight in learner.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learnt, 1e-5, fused=True)
    spent = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}

    def step() -> None:
        marks = [time.perf_counter()]
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = learner(input_ids=ids_BT).last_hidden_state.float().mean()
        for advance in (loss.backward, optimizer.step, optimizer.zero_grad):
            wait()
            marks.append(time.perf_counter())
            advance()
        wait()
        for phase, began, ended in zip(spent, marks, [*marks[1:3], time.perf_counter()], strict=False):
            spent[phase] += ended - began

    print_row(name, "learning", ids_BT.numel(), seconds(step, times), 2 * work, best)
    whole = sum(spent.values())
    print("  " + ", ".join(f"{phase} {part / whole:.0%}" for phase, part in spent.items()), flush=True)


def print_row(name: str, what: str, tokens: int, spent: float, work: float, best: float) -> None:
    """Print a row."""
    memory = f", {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if DEVICE.type == "cuda" else ""
    share = f"{work / spent / best:.0%} of {best / 1e12:.2f} TFLOP/s"
    print(f"{name}, {what}: {tokens / spent:,.0f} tokens/s, {share}{memory}", flush=True)


def main() -> None:
    """Measure every requested shape."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["minilm"])
    parser.add_argument("--texts", type=int, default=32, help="texts of a pass")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a text")
    parser.add_argument("--times", type=int, default=5, help="runs of each, of which the fastest counts")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # about future names and a missing pooler
    where = torch.cuda.get_device_name() if DEVICE.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}: {asked.texts} texts of {asked.tokens} tokens, bfloat16")
    for name in asked.shapes:
        measure(name, asked.texts, asked.tokens, asked.times)


if __name__ == "__main__":
    main()
