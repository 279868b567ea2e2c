"""What the commands ``info``, ``conformance``, ``inspect`` and ``tune`` do."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

import numpy as np
import torch

from .._version import __version__
from ..dispatch.host import has_double
from ..errors import ArgumentError
from ..io.files import PLOTS, require_writable, write_json
from ..native import absence, kernel
from ..rules import methods
from ..rules.advice import ADVICE
from ..solvers.devices import state

_NOT_ON_ACCELERATORS = (
    "all thresholds that are measured are between two ways on a CPU; the size up to which Triton kernels are meant, "
    "eight rows or columns, is taken from published figures"
)


def info(_: argparse.Namespace) -> None:
    """Print versions, the solver in use, and the methods."""
    native = kernel()
    without = f"LAPACK through torch.linalg (native kernel {absence()})"
    capability = torch.backends.cpu.get_cpu_capability()
    rows = {
        "spectralgrad": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "instruction set": f"{capability} (torch)",
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
        "eigensolver": f"native kernel ({native.isa}), LAPACK behind it" if native else without,
        **_accelerators(),
    }
    for name, value in rows.items():
        print(f"{name:<16} {value}")
    print("\nwhich method to use")
    width = max(map(len, ADVICE))
    print("\n".join(f"  {task:<{width}}  {advice}" for task, advice in ADVICE.items()))
    print("\nall methods")
    print("\n".join(f"  {line}" for line in repr(methods()).splitlines()))


def _accelerators() -> dict[str, str]:
    """Return what decomposes small matrices on each accelerator. Its Triton kernels are tested for that."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None:
        return {"accelerators": "none"}
    if not has_double(kind):
        return {"accelerators": f"{kind.type}: it has no float64, matrices go to the CPU"}
    devices = [torch.device(kind.type, i) for i in range(torch.accelerator.device_count())]
    reasons = {str(device): state(device) for device in devices}
    used = "Triton kernels for small matrices, torch.linalg behind them"
    return {name: f"torch.linalg (Triton kernels: {why})" if why else used for name, why in reasons.items()}


def conformance(options: argparse.Namespace) -> None:
    """Measure the gradient errors of all methods, and print, write and plot them."""
    from ..diagnostics import conformance, gradient_error_plot

    require_writable(options.json)  # before the measurement, which takes a while
    require_writable(options.plot, PLOTS)
    if options.plot:
        gradient_error_plot.require()
    results = conformance.main(options.function, options.sizes)
    if options.json:
        write_json(options.json, conformance.as_json(results))
        print(f"\nwritten: {options.json}")
    if options.plot:
        gradient_error_plot.gradient_error(options.plot, options.function)
        print(f"\nplotted: {options.plot}")


def inspect(options: argparse.Namespace) -> None:
    """Print the report on the matrices of a file."""
    from ..diagnostics import inspect

    print(inspect(_matrices(options.file), method=options.method))


def _matrices(file: Path) -> torch.Tensor:
    with file.open("rb") as stream:
        if stream.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ArgumentError(f"{file} is not a .npy file")
    return torch.from_numpy(np.load(file, allow_pickle=False))


def tune(options: argparse.Namespace) -> None:
    """Measure the solvers and print the table."""
    from ..solvers import tune

    if options.device != "cpu":
        print(f"nothing to tune on {options.device}: {_NOT_ON_ACCELERATORS}")
        return
    try:
        table = tune(print)
    except RuntimeError as problem:
        print(f"nothing to tune: {problem}")
    else:
        print(f"\n{table}")
