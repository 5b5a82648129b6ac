"""Sampling by vLLM for the trainer: in its process, or on a server that gets weights (TRL) or a LoRA before a step."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from harr.compute import distributed
from harr.errors import ModelError, ParamsError, ServiceUnavailable, one_line
from harr.params.train import AgentParams
from harr.rag.generation.local_model import LanguageModel
from harr.rag.generation.sampler import Scored
from harr.train.lora_servers import LoraServers

GAP = 0.5
"""Maximum difference of a sampler in nats per token: rounding in bfloat16 makes .03, weights one step old .9."""
CAP = 3.0
"""Maximum importance ratio of a token."""


def check_vllm(params: AgentParams) -> None:
    """Check whether the engine of ``train.vllm`` is available here.

    Raises:
        ParamsError: no vLLM, no GPU, or several trainers with one server.
    """
    if params.vllm in ("none", "adapter"):
        return
    setting = f"train.vllm: {params.vllm}"
    if importlib.util.find_spec("vllm") is None:
        raise ParamsError(
            f"{setting} needs the package vllm in this environment; see docs/serving.md, or set train.vllm: adapter"
        )
    if not torch.cuda.is_available():
        raise ParamsError(f"{setting} needs a CUDA GPU, and torch finds none; set train.vllm: none")
    if params.vllm == "server" and distributed.count() > 1:
        raise ParamsError(
            f"{setting} takes one trainer, found {distributed.count()} processes, which would wait for each other when "
            "their episodes differ in length; start one process, or set train.vllm: colocate"
        )


@contextmanager
def handle_vllm_errors(params: AgentParams) -> Iterator[None]:
    """Translate errors of TRL's vLLM server within the block; TRL waits for it for up to four minutes.

    Raises:
        ServiceUnavailable: it is unavailable, or takes no weights.
    """
    try:
        yield
    except Exception as error:
        is_refusal = type(error) is Exception and str(error).startswith("Request failed")  # TRL's message
        if params.vllm != "server" or not (is_refusal or isinstance(error, OSError | RuntimeError)):
            raise
        raise ServiceUnavailable(
            f"train.vllm: server {params.server and params.server.urls[0]} cannot be used: {one_line(error, 300)}; "
            "start it as docs/serving.md says"
        ) from None


def attach_vllm(trainer: Any, params: AgentParams, language_model: LanguageModel, folder: Path) -> None:
    """Let vLLM sample for TRL's trainer: our servers, or TRL's engine with our error messages.

    With ``adapter`` the LoRAs are in ``folder``, and an episode has the servers' room. Otherwise TRL would add the LoRA
    to the base, send it and subtract it again, which in bfloat16 leaves a rounding error at every step: the base would
    drift. The merged weights sent here are computed without changing the base.
    """
    if params.vllm == "none":
        return
    if params.vllm == "adapter" and params.server:
        servers = LoraServers(params, params.server, language_model, folder / "loras")
        language_model.room = min(language_model.room, distributed.main_process_only(servers.room))
        trainer.use_vllm, trainer.vllm_generation, trainer._last_loaded_step = True, servers, -1
        return
    engine = trainer.vllm_generation
    engine.sync_weights = handle_vllm_errors(params)(engine.sync_weights)
    engine.generate = handle_vllm_errors(params)(engine.generate)
    if params.lora is not None:
        engine._iter_named_params = lambda: merged_weights(language_model.model)


def merged_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every weight of the base with its LoRA added, under its name in the base; the base stays as it is."""
    from peft.tuners.lora import LoraLayer

    layers: dict[str, Any] = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, weight in model.named_parameters():
        if model.prefix in name:  # lora_
            continue
        layer: Any = layers.get(name.removesuffix(".base_layer.weight"))
        data = weight.data
        if layer is not None and name.endswith(".weight"):
            with torch.no_grad():
                data = (data.float() + layer.get_delta_weight("default").float()).to(data.dtype)
        yield name.removeprefix("base_model.model.").replace(".base_layer", ""), data


def vllm_config(params: AgentParams) -> dict[str, Any]:
    """Return the settings of TRL's ``GRPOConfig`` for vLLM.

    The importance ratio is that of each token. TRL's default, the product over an episode, drops long episodes for
    rounding alone: in bfloat16 the logarithms of 1,500 ratios add up to more than one.
    """
    ratio = {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": CAP}
    if params.vllm in ("none", "adapter"):
        return {"use_vllm": False, **ratio}
    return {
        **ratio,
        "use_vllm": True,
        "vllm_mode": params.vllm,
        "vllm_server_base_url": params.server.urls[0].rstrip("/") if params.server else None,
        "vllm_gpu_memory_utilization": params.vllm_memory,
        "vllm_max_model_length": params.vllm_tokens or None,
    }


def check_gap(params: AgentParams, row: Mapping[str, Any]) -> None:
    """Stop if the sampler's log-probabilities are another model's.

    Raises:
        ModelError: they differ from the trainer's by more than ``GAP`` nats a token, on average.
    """
    if (gap := row.get("logprob_gap", 0.0)) > GAP:
        raise ModelError(
            f"train.vllm: {params.vllm}: log-probabilities of what vLLM wrote differ from the trainer's by {gap:.2f} "
            f"nats a token, expected at most {GAP}: it has other weights, or no --logprobs-mode processed_logprobs; "
            "see docs/serving.md"
        )


def generate_by_vllm(
    generation: Any,
    language_model: LanguageModel,
    contexts: Sequence[Sequence[int]],
    stops: Sequence[tuple[str, ...]],
    keys: Sequence[str],
) -> list[list[int]]:
    """Continue every context with TRL's ``trainer.vllm_generation``, and return :class:`Scored` ids, in order.

    A row ends as :meth:`LanguageModel.generate` ends it. vLLM takes one set of stop strings a call, so that rows with
    different ones are different calls. TRL's random numbers are its own; :class:`LoraServers` draws by ``keys``.
    """
    if isinstance(generation, LoraServers):
        return generation.generate(contexts, stops, keys)
    written: dict[int, list[int]] = {}
    for stop in dict.fromkeys(stops):
        rows = [row for row, stop_of_row in enumerate(stops) if stop_of_row == stop]
        generation.generation_kwargs = {"stop": list(stop), "include_stop_str_in_output": True} if stop else {}
        prompts = [list(contexts[row]) for row in rows]
        _, samples, logprobs, _ = generation.generate(prompts=prompts, images=None, num_generations=1)
        for row, ids, scores in zip(rows, samples, logprobs, strict=True):
            size = language_model.row_length(ids, stop)
            written[row] = Scored.of(ids[:size], [score[0] for score in scores[:size]])
    return [written[row] for row in range(len(contexts))]
