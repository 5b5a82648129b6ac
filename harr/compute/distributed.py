"""Several processes that train as one (``accelerate launch``); with a single process, all of this does nothing.

Every process plays the same episodes and has the same batch. Only the main one opens the index, asks the generator,
chooses passages and writes files; it broadcasts the results. Encoding and gradient passes are distributed. Every
process has a copy of the trained weights: gradients are summed before every update, so the copies stay bitwise equal.
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
WAIT = timedelta(days=1)
"""Maximum time that a process waits for another: longer than a validation. One that dies is noticed at once."""


def count() -> int:
    """Return the number of processes that train together.

    >>> count(), number(), is_main()
    (1, 0, True)
    """
    return int(os.environ.get("WORLD_SIZE", "1"))


def number() -> int:
    """Return this process's number among the ``count()``, from 0."""
    return int(os.environ.get("RANK", "0")) if count() > 1 else 0


def is_main() -> bool:
    """Return whether this is the process that opens, asks and writes."""
    return number() == 0


def device() -> str | None:
    """Return this process's device; None if it is the only one."""
    return str(_join_processes()) if count() > 1 else None


def _join_processes() -> torch.device:
    """Join the process group at the first call; return this process's device.

    Raises:
        ParamsError: accelerate is configured for an engine that harr does not support.
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
    """Return the process group for objects: gloo, even with GPUs.

    Waiting in NCCL keeps a core and a GPU busy, and processes wait while the main one plays.
    """
    _join_processes()
    return torch.distributed.new_group(backend="gloo", timeout=WAIT)


def _accelerate() -> ModuleType:
    """Import accelerate, which a single process, such as a search application, does not need."""
    return optional("accelerate", "pipeline")


def _configured(engine: str) -> bool:
    return os.environ.get(f"ACCELERATE_USE_{engine}", "").lower() == "true"


def shard(model: torch.nn.Module, weights: Iterable[torch.nn.Parameter]) -> None:
    """Cut the frozen part of ``model`` into one shard per process if accelerate is configured for FSDP.

    Layers are gathered while they compute (FSDP 2), so all processes must run them equally often. The trained
    ``weights`` stay whole in every process; DDP, if it wraps the model, sees only these.
    """
    if count() == 1 or not _configured("FSDP"):
        return
    mesh, whole = init_device_mesh(_join_processes().type, (count(),)), set(weights)
    for layer in [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]:
        fully_shard(layer, mesh=mesh, ignored_params=whole)
    fully_shard(model, mesh=mesh, ignored_params=whole)
    frozen = [name for name, weight in model.named_parameters() if weight not in whole]
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, frozen)


def main_process_only(call: Callable[[], T]) -> T:
    """Call ``call`` in the main process only; return its result, or raise its ``HarrError``, in all processes."""
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
def open_in_main(opened: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """Open a resource in the main process. The others get None and must use it through ``main_process_only``."""
    resources: list[T] = []
    with ExitStack() as stack:
        main_process_only(lambda: resources.append(stack.enter_context(opened())))
        yield resources[0] if resources else cast(T, None)


def share(size: int) -> tuple[int, int]:
    """Return this process's share of ``size`` rows: its first row, and the first row after it.

    >>> share(5)
    (0, 5)
    """
    return size * number() // count(), size * (number() + 1) // count()


def gather_rows(mine: Sequence[T]) -> list[T]:
    """Gather the rows of all processes, the main one's first, in all of them.

    >>> gather_rows([1, 2])
    [1, 2]
    """
    if count() == 1:
        return list(mine)
    parts: list[Any] = [None] * count()
    torch.distributed.all_gather_object(parts, list(mine), group=_objects())
    return [row for part in parts for row in part]


def share_work(size: int, work: Callable[[Sequence[int]], Sequence[T]]) -> list[T]:
    """Return one result for each of ``size`` rows, in order, in all processes; each does ``work`` on its share.

    Neighbouring rows, which take similar time, go to different processes. A share may be empty.

    >>> share_work(3, lambda rows: [row * row for row in rows])
    [0, 1, 4]
    """
    mine = range(number(), size, count())
    results = dict(gather_rows(list(zip(mine, work(mine), strict=True))))
    return [results[row] for row in range(size)]


def check_same_step(done: int, folder: Path) -> None:
    """Check that all processes resume at the same step.

    Raises:
        StaleState: a process resumes at another step than the main one.
    """
    if (main := main_process_only(lambda: done)) != done:
        raise StaleState(
            f"process {number()} resumes at step {done}, the main one at {main}; "
            f"{folder} must be one folder for all machines"
        )


def refuse_shards(method: str, unless: str = "") -> None:
    """Refuse FSDP for a method whose model must be whole in every process; ``unless``: the alternative.

    Raises:
        ParamsError: accelerate is configured to shard models.
    """
    for engine in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if _configured(engine):
            raise ParamsError(
                f"accelerate is configured for {engine}, but train.method {method} needs the whole model in every "
                f"process; use recipes/accelerate/multi_gpu.yaml{unless}"
            )


def all_gather(texts: Sequence[str], encode: Callable[[Sequence[str]], NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the vectors of ``texts``, (n, D), bitwise equal in all processes; each encodes its share.

    Shares are padded to one size, so every process runs the model equally often.
    """
    if count() == 1 or not texts:
        return encode(texts)
    size = -(-len(texts) // count())
    mine = [texts[i % len(texts)] for i in range(number(), size * count(), count())]
    every: Tensor = _accelerate().utils.gather(torch.from_numpy(encode(mine)).to(_join_processes()))
    return every.view(count(), size, -1).transpose(0, 1).flatten(0, 1)[: len(texts)].cpu().numpy()


def sum_processes(values: Tensor) -> Tensor:
    """Sum ``values`` over all processes, in place, and return them."""
    if count() > 1:
        local = values.to(_join_processes())
        torch.distributed.all_reduce(local)
        values.copy_(local)
    return values


def sum_gradients(weights: Iterable[Tensor]) -> None:
    """Sum the gradients over all processes, in one message for all ``weights``."""
    if count() == 1:
        return
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    flat = sum_processes(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def total(figures: Mapping[str, float], *, largest: str = "") -> dict[str, float]:
    """Return figures summed over all processes; for the figure ``largest``, the maximum.

    >>> total({"loss": 0.5, "gap": 0.1}, largest="gap")
    {'loss': 0.5, 'gap': 0.1}
    """
    if count() == 1:
        return dict(figures)
    mine = torch.tensor([list(figures.values())], dtype=torch.float64, device=_join_processes())
    columns = zip(figures, _accelerate().utils.gather(mine).T.tolist(), strict=True)
    return {name: max(column) if name == largest else sum(column) for name, column in columns}
