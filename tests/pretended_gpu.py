"""A GPU pretended on a CPU: what only a GPU refuses fails here, and waits for it are counted.

A tensor "on the GPU" is an :class:`OnGPU`: for C++ a tensor without storage (device meta), for Python one on cuda:0,
with the numbers of a CPU tensor. As on a GPU, operations refuse tensors of two devices, NumPy and oneDNN cannot read
its tensors, and a CPU generator cannot fill them. It cannot show speed, memory, CUDA's kernels, or what autocast casts:
it has no bfloat16.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.utils import _device
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

GPU = torch.device("cuda", 0)
ROOT = str(Path(__file__).parents[1])
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive", "equal"}
"""Operations whose result, or its shape, the CPU must know before it continues."""
INDEXED = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}
"""Operations that accept indices on the CPU."""
STRICT = {"cat", "stack", "gather", "scatter", "index_select", "embedding", "searchsorted"}
"""Operations that refuse even a single number on the CPU."""


class OnGPU(torch.Tensor):
    """A tensor whose numbers are those of ``data_``, a CPU tensor."""

    data_: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> "OnGPU":
        with torch.inference_mode(False), torch._C._DisableTorchDispatch():  # inference tensors have no subclass
            like = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device="meta")
            made = torch.Tensor._make_subclass(cls, like)
        made.data_ = data
        return made

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_meta = property(lambda self: False)
    is_cpu = property(lambda self: False)

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, other: "OnGPU") -> None:
        self.data_ = other.data_

    def __getitem__(self, key: Any) -> torch.Tensor:  # C++ would put a list's numbers on the meta device and lose them
        parts = key if isinstance(key, tuple) else (key,)
        return super().__getitem__(
            tuple(torch.tensor(part, dtype=torch.long) if isinstance(part, list) else part for part in parts)
        )

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.data_.untyped_storage()

    def data_ptr(self) -> int:
        return self.data_.data_ptr()

    def __deepcopy__(self, memo: Any) -> "OnGPU":
        copy = memo[id(self)] = OnGPU(self.data_.clone()).requires_grad_(self.requires_grad)
        copy._is_param = getattr(self, "_is_param", False)
        return copy

    def __tensor_flatten__(self) -> tuple[list[str], None]:  # lets Module.to swap weights and keep their identity
        return ["data_"], None

    @staticmethod
    def __tensor_unflatten__(inner: Mapping[str, torch.Tensor], *_: Any) -> "OnGPU":
        return OnGPU(inner["data_"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of the pretended GPU")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    __array__ = numpy

    def __repr__(self, **_: Any) -> str:
        return f"OnGPU({self.data_!r})"


def is_gpu(device: Any) -> bool:
    """Return whether a device is the GPU; C++ calls it meta, where transformers also makes empty models."""
    empty = _device.CURRENT_DEVICE is not None and _device.CURRENT_DEVICE.type == "meta"
    return device.type == "cuda" or (device.type == "meta" and not empty)


def on_meta(call: Any) -> Any:
    """Give a torch function that looks for CUDA's driver the device name that C++ knows."""

    def rename(one: Any) -> Any:
        is_name = isinstance(one, torch.device) or (isinstance(one, str) and one.startswith("cuda"))
        return "meta" if is_name and torch.device(one).type == "cuda" else one

    def renamed(*args: Any, **kwargs: Any) -> Any:
        return call(*map(rename, args), **{key: rename(value) for key, value in kwargs.items()})

    return renamed


def first_here(call: Any) -> Any:
    """Let a function make its tensor on the CPU and move it from there."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        tensor = call(*args, **kwargs)
        return tensor if device is None else tensor.to(device)

    return made


class PretendedGPU(TorchDispatchMode):
    """Computes on the CPU what has tensors on the GPU, and counts waits and copies by line of the project.

    Attributes:
        waits: how often a line waited for a number, or for a copy to the CPU.
        copies: how often a line copied a tensor to the GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.copies = Counter[str](), Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), func._schema.name.split("::")[1]
        flat, _ = tree_flatten((args, kwargs))
        tensors = [one for one in flat if isinstance(one, torch.Tensor)]
        target = next((one for one in flat if isinstance(one, torch.device)), None)
        here = any(isinstance(one, OnGPU) for one in tensors)
        there = is_gpu(target) if target is not None else here
        if not here and not there:
            kwargs.pop("pin_memory", None)  # it needs a driver
            return func(*args, **kwargs)
        with self:  # without gradients, composite operations arrive here whole
            made = func.decompose(*args, **kwargs)
        if made is not NotImplemented:
            return made
        if here:
            self._check(func, name, tensors, args)
        if there and any(isinstance(one, torch.Generator) for one in flat):
            raise RuntimeError(f"{func}: Expected a 'cuda' device type for generator but found 'cpu'")
        if name == "copy_":
            there, here = (isinstance(one, OnGPU) for one in args[:2])
        if name in WAITS or (here and not there):
            self.waits[line()] += 1
        elif tensors and there and not here:
            self.copies[line()] += 1
        known = {id(one.data_): one for one in tensors if isinstance(one, OnGPU)}
        args, kwargs = tree_map_only(OnGPU, lambda one: one.data_, (args, kwargs))
        args, kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs))
        made = multiply(name, args, kwargs) if "mm" in name and "dtype" in func._overloadname else func(*args, **kwargs)
        if not there:
            return made
        return tree_map_only(torch.Tensor, lambda one: known[id(one)] if id(one) in known else OnGPU(one), made)

    @staticmethod
    def _check(func: Any, name: str, tensors: list[torch.Tensor], args: Any) -> None:
        """Refuse what a GPU refuses."""
        if "mkldnn" in str(func):
            raise NotImplementedError(f"{func} has no kernel for a GPU")
        if name in ("copy_", "_to_copy") or (name in INDEXED and isinstance(args[0], OnGPU)):
            return
        for one in tensors:
            assert isinstance(one, OnGPU) or one.device.type != "meta", f"{func} of a tensor without numbers"
            if not isinstance(one, OnGPU) and (one.dim() or name in STRICT):
                shapes = [(list(each.shape), each.device.type) for each in tensors]
                raise RuntimeError(f"{func}: Expected all tensors to be on the same device, but got {shapes}")


def multiply(name: str, args: Any, kwargs: Any) -> torch.Tensor:
    """Multiply with a result of another type, which only CUDA has kernels for."""
    out, dtype = kwargs.pop("out", None), args[-1]
    made = getattr(torch, name)(*(one.to(dtype) for one in args[:-1]), **kwargs)
    return made if out is None else out.copy_(made)


def line() -> str:
    """Return the innermost running line of the project."""
    frame = sys._getframe(2)
    while frame := frame.f_back:
        path = frame.f_code.co_filename
        if path.startswith(ROOT) and "/.venv/" not in path and path != __file__:
            return f"{path[len(ROOT) + 1 :]}:{frame.f_lineno}"
    return "none"


def forget_accelerator() -> None:
    """Let accelerate choose its device and number format again; it does so once per process."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@contextmanager
def pretended_gpu() -> Iterator[PretendedGPU]:
    """Let torch and its dependents see one GPU, until the end."""
    forget_accelerator()
    _device._device_constructors()  # it remembers torch.tensor, which is replaced below
    lifted = torch._C._only_lift_cpu_tensors()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ANSWERS.items():
            patch.setattr(torch.cuda, name, lambda *_, _value=value, **__: _value)
        patch.setattr(torch.Tensor, "to", on_meta(torch.Tensor.to))
        patch.setattr(torch.Tensor, "cuda", lambda self, *_, **__: self.to("meta"))
        for name in ("tensor", "as_tensor"):
            patch.setattr(torch, name, first_here(getattr(torch, name)))
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            with PretendedGPU() as gpu:
                yield gpu
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)
            forget_accelerator()


ANSWERS: dict[str, Any] = {
    "_lazy_init": None,
    "is_available": True,
    "is_initialized": True,
    "device_count": 1,
    "current_device": 0,
    "set_device": None,
    "is_bf16_supported": False,
    "get_device_capability": (9, 0),
    "get_device_name": "pretended",
    "mem_get_info": (80 << 30, 80 << 30),
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "empty_cache": None,
    "synchronize": None,
    "manual_seed": None,
    "manual_seed_all": None,
    "get_rng_state_all": [],
    "set_rng_state_all": None,
}
