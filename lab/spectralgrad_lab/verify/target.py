"""The device that is verified: whether torch has it, and what it can compute."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from spectralgrad.errors import SpectralError

TYPES = (torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.float16)
# What torch raises for a type, an operator or a device that it does not have.
LACKING = (RuntimeError, TypeError, AssertionError, NotImplementedError)


@dataclass(frozen=True)
class Target:
    """A device under test.

    Example:
        >>> Target("cpu").dtypes[0], Target("cpu").is_cpu
        (torch.float32, True)
    """

    name: str

    @property
    def device(self) -> torch.device:
        return torch.device(self.name)

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @cached_property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The floating-point types in which the device multiplies matrices."""
        return tuple(dtype for dtype in TYPES if self._multiplies(dtype))

    @property
    def checks_at_once(self) -> bool:
        """True if every call is checked on the CPU: on a CPU, and where matrices go there for want of float64."""
        return self.is_cpu or torch.float64 not in self.dtypes

    @property
    def wide(self) -> torch.dtype:
        """The most precise real type of the device."""
        return torch.float64 if torch.float64 in self.dtypes else torch.float32

    def put(self, x: Tensor) -> Tensor:
        """Return a new leaf on the device."""
        return x.detach().to(self.device, copy=True)

    def synchronize(self) -> None:
        """Wait until all work that was queued on the device is done."""
        if not self.is_cpu:
            module = getattr(torch, self.device.type, None)
            getattr(module, "synchronize", lambda: None)()

    def _multiplies(self, dtype: torch.dtype) -> bool:
        try:
            ones = torch.ones(2, 2).to(dtype).to(self.device)
            return bool(((ones @ ones).cpu() == 2).all())
        except LACKING:
            return False

    @cached_property
    def description(self) -> dict[str, str]:
        """What identifies the hardware and its software, and not its owner."""
        found = {"device": self.name, "types": ", ".join(str(x).removeprefix("torch.") for x in self.dtypes)}
        if self.is_cuda:
            properties = torch.cuda.get_device_properties(self.device)
            found["name"] = properties.name
            found["capability"] = f"{properties.major}.{properties.minor}"
            found["memory"] = f"{properties.total_memory / 2**30:.1f} GiB"
            found["toolkit"] = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}"
            found["driver"] = _driver()
        elif self.device.type == "xpu":
            found["name"] = torch.xpu.get_device_properties(self.device).name
        return found


def _driver() -> str:
    """The version of the driver of NVIDIA's GPUs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown"
    arguments = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    said = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=False).stdout.split()
    return said[0] if said else "unknown"


def present() -> list[str]:
    """The kinds of devices that torch has on this machine.

    Example:
        >>> "cpu" in present()
        True
    """
    return ["cpu", *(kind for kind in ("cuda", "mps", "xpu") if _works(kind))]


def target(name: str) -> Target:
    """Return the device of a name such as ``cuda`` or ``cuda:1``.

    Raises:
        SpectralError: torch does not have it.

    Example:
        >>> target("cpu").name
        'cpu'
    """
    if not _works(name):
        raise SpectralError(f"--device {name}: torch {torch.__version__} has no such device; it has {_listed()}")
    return Target(name)


def _listed() -> str:
    found = present()
    return "the CPU only" if found == ["cpu"] else ", ".join(found)


def _works(name: str) -> bool:
    try:
        device = torch.device(name)
        return device.type != "meta" and float(torch.ones(2).to(device).add(1).cpu()[0]) == 2
    except LACKING:
        return False
