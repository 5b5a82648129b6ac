"""GRPO with ``train.vllm: colocate`` in vLLM's environment, on a CPU: ``python vllm_colocate.py FOLDER PACKAGES JSON``.

It works in FOLDER, and takes what vLLM's environment lacks from the folder PACKAGES. JSON says whether it trains a
``lora``, and whether the engine's weights get ``stale``. Prints the history, or why the run was ended.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

FOR_CPU = {"dtype": "float32", "enforce_eager": True, "enable_chunked_prefill": False, "max_num_batched_tokens": 8192}


def main(folder: Path, *, lora: bool, stale: bool) -> str:
    """Train the letters for four steps; what vLLM and TRL do otherwise on a GPU is patched here alone."""
    import torch
    import vllm
    from letters import QUESTIONS, OnePassage, nothing, save_letters, spell
    from trl.generation import vllm_generation
    from vllm.model_executor.layers import utils

    from harr.errors import ModelError
    from harr.params.train import AgentParams
    from harr.params.train_facts import LoraParams
    from harr.rag.scoring.reward import Reward
    from harr.rag.setup import Setup
    from harr.train import agent

    def keep_weights(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear  # packed ones take no others

    patched: Any = agent
    patched.check_vllm = lambda params: None  # it asks for CUDA
    utils.dispatch_cpu_unquantized_gemm = keep_weights
    patched = vllm_generation
    patched.LLM = lambda **asked: vllm.LLM(**asked | FOR_CPU)
    if stale:
        patched.VLLMGeneration.sync_weights = lambda engine: None

    language_model = str(save_letters(folder / "letters", spread=0.2, head=32))
    reward = Reward({"letters:share_of_a": 1.0})
    setup = Setup(QUESTIONS, spell, OnePassage(), None, reward, "letters", language_model=language_model)  # type: ignore[arg-type]
    learns = {"lora": LoraParams(rank=8, alpha=64) if lora else None, "max_tokens": 6}
    learns |= {"optimizer": {"learning_rate": 2e-2}}
    of = {"steps": 4, "questions_per_step": 4, "group_size": 8, "episodes_per_pass": 8}
    params = AgentParams(method="agent", vllm="colocate", vllm_tokens=64, **learns, **of)
    try:
        return "history " + json.dumps(agent.train(params, setup, folder / "out", folder / "work", nothing, 0))
    except ModelError as error:
        return f"ended {error}"


if __name__ == "__main__":
    sys.path.append(sys.argv[2])  # the last place: torch, transformers and numpy are those of vLLM
    warnings.filterwarnings("ignore")
    sys.stdout.write(f"{main(Path(sys.argv[1]), **json.loads(sys.argv[3]))}\n")
