"""Several processes that train as one (``accelerate launch``); with a single one, all of this does nothing.

Every process plays the same episodes and holds the same batch. The main one alone opens the index, asks the
generator, chooses passages and writes files; the others hear what it got. Encoding and gradient passes are shared
out. The weights that learn are copies: their gradients are added up before every update, so that they stay equal to
the last bit.
"""

import atexit
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.modeling_layers import GradientCheckpointingLayer

from harr.errors import HarrError, ParamsError, StaleState
from harr.io.extras import optional

T = TypeVar("T")
WAIT = timedelta(hours=1)
"""Time that a process waits for another: longer than the slowest batch of text takes to write."""


def count() -> int:
    """Return how many processes train together.

    >>> count(), number(), is_main()
    (1, 0, True)
    """
    return int(os.environ.get("WORLD_SIZE", "1"))


def number() -> int:
    """Return the number of this process among the ``count()``, from 0."""
    return int(os.environ.get("RANK", "0")) if count() > 1 else 0


def is_main() -> bool:
    """Return whether this process is the one that opens, asks and writes."""
    return number() == 0


def device() -> str | None:
    """Return where this process computes, as torch names it; None: wherever a single process would."""
    return str(_joined()) if count() > 1 else None


def _joined() -> torch.device:
    """Meet the other processes, the first time; returns this one's device.

    Raises:
        ParamsError: accelerate is configured for an engine that harr does not train with.
    """
    if not torch.distributed.is_initialized():
        for engine in ("DEEPSPEED", "MEGATRON_LM"):
            if _configured(engine):
                raise ParamsError(f"accelerate is configured for {engine}; use one of recipes/accelerate/*.yaml")
        _accelerate().PartialState(cpu=not torch.cuda.is_available(), timeout=WAIT)
        atexit.register(torch.distributed.destroy_process_group)  # gloo aborts an exit with its threads alive
    return cast(torch.device, _accelerate().PartialState().device)


@cache
def _objects() -> torch.distributed.ProcessGroup | None:
    """Return the group in which processes hand each other objects: gloo's, also beside GPUs.

    Whoever waits in NCCL keeps a core and a GPU busy, and the others wait for as long as the main one plays.
    """
    _joined()
    return torch.distributed.new_group(backend="gloo", timeout=WAIT)


def _accelerate() -> ModuleType:
    """Return what several processes need; a single one does without, such as an application that searches."""
    return optional("accelerate", "pipeline")


def _configured(engine: str) -> bool:
    return os.environ.get(f"ACCELERATE_USE_{engine}", "").lower() == "true"


def shard(model: torch.nn.Module, weights: Iterable[torch.nn.Parameter]) -> None:
    """Cut the frozen part of ``model`` into one shard per process, where accelerate is configured for FSDP.

    Layers are put together while they compute (FSDP 2), so all processes must compute equally often. The ``weights``
    that learn stay whole in every process; DDP, if it wraps the model, sees only them.
    """
    if count() == 1 or not _configured("FSDP"):
        return
    mesh, whole = init_device_mesh(_joined().type, (count(),)), set(weights)
    for layer in [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]:
        fully_shard(layer, mesh=mesh, ignored_params=whole)
    fully_shard(model, mesh=mesh, ignored_params=whole)
    frozen = [name for name, weight in model.named_parameters() if weight not in whole]
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, frozen)


def main_process_only(call: Callable[[], T]) -> T:
    """Return what ``call`` returns in the main process, which alone calls it; its ``HarrError`` is raised in all."""
    if count() == 1:
        return call()
    group = _objects()
    answer: list[Any] = [None, None]
    if is_main():
        try:
            answer[0] = call()
        except HarrError as error:
            answer[1] = error
    torch.distributed.broadcast_object_list(answer, group=group)
    if answer[1] is not None:
        raise answer[1]
    return cast(T, answer[0])


@contextmanager
def held_by_main(opened: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """Open something in the main process. The others are given None, and must use it within ``main_process_only``."""
    held: list[T] = []
    with ExitStack() as stack:
        main_process_only(lambda: held.append(stack.enter_context(opened())))
        yield held[0] if held else cast(T, None)


def share(size: int) -> tuple[int, int]:
    """Return this process's part of ``size`` rows: from the first up to, not with, the last.

    >>> share(5)
    (0, 5)
    """
    return size * number() // count(), size * (number() + 1) // count()


def joined(mine: Sequence[T]) -> list[T]:
    """Return what all processes have, the main one's first, in all of them.

    >>> joined([1, 2])
    [1, 2]
    """
    if count() == 1:
        return list(mine)
    found: list[Any] = [None] * count()
    torch.distributed.all_gather_object(found, list(mine), group=_objects())
    return [one for part in found for one in part]


def shared_out(size: int, work: Callable[[Sequence[int]], Sequence[T]]) -> list[T]:
    """Return one result per row of ``size``, in order, in all processes; each does ``work`` on its share of the rows.

    Neighbours, which take about as long, go to different processes. A share may be empty.

    >>> shared_out(3, lambda rows: [row * row for row in rows])
    [0, 1, 4]
    """
    mine = range(number(), size, count())
    found = dict(joined(list(zip(mine, work(mine), strict=True))))
    return [found[row] for row in range(size)]


def check_same_step(done: int, folder: Path) -> None:
    """Let a run go on where all processes found it.

    Raises:
        StaleState: a process has finished another number of steps than the main one.
    """
    if (main := main_process_only(lambda: done)) != done:
        raise StaleState(
            f"process {number()} resumes at step {done}, the main one at {main}; "
            f"{folder} must be one folder for all machines"
        )


def refuse_shards(method: str, unless: str = "") -> None:
    """Refuse FSDP for a method whose model must be whole in every process; ``unless``: what else would do.

    Raises:
        ParamsError: accelerate is configured to cut models up.
    """
    for engine in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if _configured(engine):
            raise ParamsError(
                f"accelerate is configured for {engine}, but train.method {method} needs the whole model in every "
                f"process; use recipes/accelerate/multi_gpu.yaml{unless}"
            )


def all_gather(texts: Sequence[str], encode: Callable[[Sequence[str]], NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the vectors of ``texts``, (n, D), in all processes to the same bit; each encodes its share.

    Shares are filled up to one size, so that every process runs the model equally often.
    """
    if count() == 1 or not texts:
        return encode(texts)
    size = -(-len(texts) // count())
    mine = [texts[i % len(texts)] for i in range(number(), size * count(), count())]
    every: Tensor = _accelerate().utils.gather(torch.from_numpy(encode(mine)).to(_joined()))
    return every.view(count(), size, -1).transpose(0, 1).flatten(0, 1)[: len(texts)].cpu().numpy()


def add_up(values: Tensor) -> Tensor:
    """Return the sum of ``values`` over all processes, in place."""
    if count() > 1:
        here = values.to(_joined())
        torch.distributed.all_reduce(here)
        values.copy_(here)
    return values


def sum_gradients(weights: Iterable[Tensor]) -> None:
    """Give every process the sum of all gradients: one message for all ``weights``."""
    if count() == 1:
        return
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    flat = add_up(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def total(figures: Mapping[str, float], *, largest: str = "") -> dict[str, float]:
    """Return figures of all processes' shares, added up; of the one called ``largest`` the largest.

    >>> total({"loss": 0.5, "gap": 0.1}, largest="gap")
    {'loss': 0.5, 'gap': 0.1}
    """
    if count() == 1:
        return dict(figures)
    mine = torch.tensor([list(figures.values())], dtype=torch.float64, device=_joined())
    columns = zip(figures, _accelerate().utils.gather(mine).T.tolist(), strict=True)
    return {name: max(column) if name == largest else sum(column) for name, column in columns}
