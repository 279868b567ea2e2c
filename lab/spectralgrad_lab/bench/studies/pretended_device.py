"""A device that is not the CPU, for machines without an accelerator: the study of launches and the tests use it.

Tensors of the device are wrappers around CPU tensors. Every operation on them is computed on the CPU and counted. What
would make the host wait for an accelerator is counted as a read: a number or a mask that Python looks at, a copy to the
CPU, a result whose size depends on values. As on an accelerator, tensors of two devices cannot meet in an operation,
unless the one of the CPU is a single number, so a factory that forgets the device fails.

The library takes its tensors for ordinary ones, like tensors of a real accelerator, which Python does not see: its
operators run with the device's tensors, and what they do is counted as well. A
``torch.linalg`` driver on an accelerator reads its own status; these reads are counted as drivers. Nothing here says
anything about speed. It needs a private function of torch 2.13, and it changes a process: torch then takes the device
for an accelerator, to which a DataLoader may pin memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from spectralgrad.dispatch import torch_internals
from spectralgrad.dispatch.custom_operators import bodies

NAME = "pretended"
available = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")

# What waits for the device: the result is a number of Python, or has a size that depends on values.
_READS = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "unique_dim", "unique_consecutive"}
_READS |= {"repeat_interleave", "is_nonzero", "allclose", "bincount"}
# On an accelerator these read the status of the factorisation, to raise torch's errors.
_DRIVERS = {"_linalg_eigh", "_linalg_svd", "linalg_eig", "_linalg_check_errors"}
_COPIES = {"_to_copy", "copy_", "_copy_from"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


_NO_LAUNCHES = {"empty_like", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh", "_local_scalar_dense"}


class Count:
    """What happened on the device.

    Attributes:
        operators: the calls of the library's operators.
        operations: the calls of each operation of torch.
        launches: those that compute or copy something on the device: no views, no new memory, no reads.
        reads: the operations that made the host wait, with the place in the library.
        drivers: the calls of torch.linalg that read their own status.
        uploads: copies from the host.
    """

    def __init__(self) -> None:
        self.operators: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()
        self.reads: list[str] = []
        self.drivers: list[str] = []
        self.uploads: list[str] = []


_counts: list[Count] = []
_DOUBLE = {torch.float64, torch.complex128}
# What Apple's MPS lacks, or lacked in some version of torch.
_LACKING = _DRIVERS | {"linalg_qr", "linalg_cholesky_ex", "linalg_solve_triangular", "linalg_lu_factor_ex"}
_LACKING |= {"_linalg_solve_ex", "linalg_inv_ex", "_linalg_det", "_linalg_slogdet"}
_limited: list[bool] = []


@contextmanager
def limited() -> Iterator[None]:
    """Context in which the device has neither float64 nor decompositions, as Apple's MPS."""
    _limited.append(True)
    try:
        yield
    finally:
        _limited.pop()


@contextmanager
def counted() -> Iterator[Count]:
    """Context that counts operations on the device, in all threads."""
    count = Count()
    _counts.append(count)
    try:
        yield count
    finally:
        _counts.remove(count)


class DeviceTensor(Tensor):
    """A tensor of the pretended device; ``on_host`` holds its values."""

    on_host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, on_host: Tensor) -> DeviceTensor:
        if _limited and on_host.dtype in _DOUBLE:
            raise TypeError("this device has no float64")
        layout: dict[str, Any] = {
            "strides": on_host.stride(),
            "storage_offset": on_host.storage_offset(),
            "dtype": on_host.dtype,
        }
        made = torch.Tensor._make_wrapper_subclass(cls, on_host.shape, device=torch.device(NAME, 0), **layout)
        made.on_host = on_host
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any, kwargs: Any) -> Any:  # type: ignore[override]
        name, kwargs = operation._schema.name.partition("::")[2], kwargs or {}
        if operation.namespace == "spectralgrad":
            for count in _counts:
                count.operators[name] += 1
            return bodies[name.removesuffix("_unchecked")](*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), "CompositeImplicitAutograd"):
            # Inside an operator, operations that consist of others arrive undivided.
            return operation._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        _record(name, args, kwargs)
        if name not in _NO_LAUNCHES and not any(_is_view(x) for x in operation._schema.returns):
            for count in _counts:
                count.launches[name] += 1
        to_host = _is_copy_to_host(name, args, kwargs)
        if _limited and name in _LACKING:
            raise NotImplementedError(f"{name} is not implemented for this device")
        if name == "copy_" and to_host:
            args[0].copy_(args[1].on_host)
            return args[0]
        found = operation(*tree_map(_on_host, args), **tree_map(_on_host, kwargs))
        if to_host:
            return found
        wrapped = tree_map(_wrapped, found)
        return return_and_correct_aliasing(operation, args, kwargs, wrapped)

    def data_ptr(self) -> int:
        return self.on_host.data_ptr()

    def tolist(self) -> Any:
        _record("_to_copy", (self,), {"device": "cpu"})
        return self.on_host.tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.on_host})"


def _wrapped(x: Any) -> Any:
    """Lazy conjugation acts before operations come to Python, and only on tensors that show it, unlike these."""
    return DeviceTensor(x.resolve_conj().resolve_neg()) if isinstance(x, Tensor) else x


def _is_view(result: Any) -> bool:
    return result.alias_info is not None and not result.alias_info.is_write


def _on_host(x: Any) -> Any:
    if isinstance(x, DeviceTensor):
        return x.on_host
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x


def _record(name: str, args: Any, kwargs: Any) -> None:
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    foreign = [x for x in given if not isinstance(x, DeviceTensor)]
    if name not in _COPIES and any(x.dim() and name not in _INDEXING for x in foreign):
        raise RuntimeError(f"{name}: expected all tensors on the same device, got one on the CPU")
    masks = name in _INDEXING and any(x is not None and x.dtype == torch.bool for x in args[1])
    place = f"{name} at {_place()}"
    for count in _counts:
        count.operations[name] += 1
        if name in _READS or masks or _is_copy_to_host(name, args, kwargs):
            count.reads.append(place)
        elif name in _DRIVERS:
            count.drivers.append(place)
        elif foreign and (name in _COPIES or name in _INDEXING):
            count.uploads.append(place)


def _is_copy_to_host(name: str, args: Any, kwargs: Any) -> bool:
    if name == "copy_":
        return not isinstance(args[0], DeviceTensor)
    device = kwargs.get("device")
    return name == "_to_copy" and device is not None and torch.device(device).type == "cpu"


def _place() -> str:
    """The innermost line of the library that is running."""
    import sys

    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if "spectralgrad/" in path and "tests/" not in path:
            return f"{path.rpartition('spectralgrad/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "torch"


def _empty(size: Any, dtype: Any = None, *_: Any, memory_format: Any = None, **__: Any) -> DeviceTensor:
    return DeviceTensor(torch.empty(size, dtype=dtype, memory_format=memory_format))


def _empty_strided(size: Any, stride: Any, dtype: Any = None, *_: Any, **__: Any) -> DeviceTensor:
    return DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """What torch calls for copies below ``__torch_dispatch__``, as in ``torch.tensor(1.0, device=...)``."""
    _record("copy_", (target, source), {})
    _on_host(target).copy_(_on_host(source))
    return target


def _triu_indices(row: int, col: int, offset: int = 0, dtype: Any = torch.long, **_: Any) -> DeviceTensor:
    return DeviceTensor(torch.triu_indices(row, col, offset, dtype=dtype))


def _eye(n: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> DeviceTensor:
    return DeviceTensor(torch.eye(n, dtype=dtype))


def put(x: Any) -> Any:
    """Return a tensor on the device, a leaf if ``x`` is one; a module is moved in place."""
    if isinstance(x, torch.nn.Module):
        for module in x.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = torch.nn.Parameter(put(parameter.detach()), parameter.requires_grad)
            for name, buffer in module._buffers.items():
                module._buffers[name] = None if buffer is None else put(buffer)
        return x
    return DeviceTensor(x.detach().clone()).requires_grad_(x.requires_grad)


@cache
def register() -> None:
    """Make the device known to torch, once in a process."""
    # Backward passes run in the calling thread: a thread for the device may abort the process when that ends.
    torch.autograd.set_multithreading_enabled(False)
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    extraordinary = torch_internals._extraordinary_keys
    keys = torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot
    seen = torch._C.DispatchKeySet(keys[0]).raw_repr() | torch._C.DispatchKeySet(keys[1]).raw_repr()
    ordinary: Any = lambda anywhere=False: extraordinary(anywhere) & ~(seen * anywhere)  # noqa: E731
    torch_internals._extraordinary_keys = ordinary
    for name, function in _BELOW.items():
        torch.library.impl(f"aten::{name}", "PrivateUse1")(function)  # type: ignore[arg-type]


_BELOW = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "_copy_from": _copy_from,
    "eye": _eye,
    "triu_indices": _triu_indices,
}
