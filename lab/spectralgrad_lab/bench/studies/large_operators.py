"""Time and memory of eigsh and its gradient for sparse matrices of growing size, beside the whole decomposition.

The matrix is the Laplacian of a square grid with six wells: at six places the diagonal is lower by 6 to 8.5. Its six
smallest eigenvalues belong to states bound in the wells, between -5.1 and -2.6 at every size, while all others are
above -0.1. This gap is why a Krylov method and conjugate gradients need few steps; the smallest eigenvalues of the
Laplacian alone take about 80 times as long at 10 000 rows. A ripple of 0.1 in the diagonal separates the other
eigenvalues, because torch.linalg.eigh has the gradient NaN if any are equal. The loss is a weighted density of the six
eigenvectors plus the six eigenvalues.

Each measurement has a process of its own with one thread. Times are processor times. The memory is the peak of
the process above what it had before the call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import spectralgrad as sg
from spectralgrad.diagnostics.table import render
from spectralgrad.io.files import path_argument, require_writable, write_json

from ...machine import machine

K = 6
WELLS = ((0.2, 0.2), (0.2, 0.8), (0.5, 0.5), (0.8, 0.2), (0.8, 0.8), (0.35, 0.6))
SIDES = (32, 63, 100, 316, 1000)


def grid_with_wells(side: int) -> tuple[Tensor, Tensor]:
    """Indices (2, m) and values (m,) of the matrix with ``side``² rows, row by row."""
    node = torch.arange(side * side).reshape(side, side)
    edges = torch.cat(
        [torch.stack([node[:, 1:], node[:, :-1]]).flatten(1), torch.stack([node[1:], node[:-1]]).flatten(1)], 1
    )
    diagonal = 4 + 0.1 * torch.arange(side * side, dtype=torch.float64).sin()
    for i, (x, y) in enumerate(WELLS):
        diagonal[node[int(side * x), int(side * y)]] -= 6 + i / 2
    indices = torch.cat([node.flatten().expand(2, -1), edges, edges.flip(0)], 1)
    values = torch.cat([diagonal, diagonal.new_full((2 * edges.shape[1],), -1.0)])
    order = (indices[0] * side**2 + indices[1]).argsort()
    return indices[:, order], values[order]


def loss(w: Tensor, V: Tensor) -> Tensor:
    """A weighted density of the eigenvectors plus the eigenvalues."""
    weights = torch.arange(len(V), dtype=V.dtype).cos()
    return (V.square().sum(1) * weights).sum() + w.sum()


def measured(kind: str, side: int) -> dict[str, Any]:
    """Times in seconds, memory in MB, and the derivative along a fixed direction, of one kind at one size."""
    indices, values = grid_with_wells(side)
    n = side * side
    if kind == "dense":
        values = torch.sparse_coo_tensor(indices, values, (n, n), check_invariants=False).to_dense()
    _warm_up()
    values.requires_grad_()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak of the memory starts anew
    before, start = _memory("VmRSS"), time.process_time()
    if kind == "dense":
        w, V = torch.linalg.eigh(values)
        w, V = w[:K], V[:, :K]
    else:
        w, V = sg.eigsh((indices, values), K, size=n, largest=False)
    forward = time.process_time()
    after = _memory("VmHWM")
    (g,) = torch.autograd.grad(loss(w, V), values)
    backward = time.process_time()
    found = (g[indices[0], indices[1]] if kind == "dense" else g) * torch.arange(indices.shape[1]).sin()
    return {
        "kind": kind,
        "n": n,
        "forward": forward - start,
        "backward": backward - forward,
        "memory forward": after - before,
        "memory": _memory("VmHWM") - before,
        "derivative": float(found.sum()),
    }


def _warm_up() -> None:
    """Load what is loaded at the first call."""
    small = torch.arange(100.0).diag().requires_grad_()
    loss(*sg.eigsh(small, 1)).backward()  # type: ignore[no-untyped-call]
    torch.linalg.eigh(small.detach())


def _memory(name: str) -> float:
    """The memory of this process in MB, now (VmRSS) or at its peak (VmHWM); Linux only."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def _in_own_process(kind: str, side: int) -> dict[str, Any]:
    code = "import sys, json; from spectralgrad_lab.bench import large_operators as study; "
    code += "print(json.dumps(study.measured(sys.argv[1], int(sys.argv[2]))))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, kind, str(side)], env=environment, check=True, capture_output=True, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study."""
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES, help="sides of the grid (default: %(default)s)")
    parser.add_argument("--dense", type=int, default=4000, help="largest n for torch.linalg.eigh (default: 4000)")
    parser.add_argument("--json", type=path_argument, metavar="FILE", help="also write the figures as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure every size and print the table."""
    require_writable(options.json)
    results = []
    for side in options.sides:
        kinds = ["eigsh", "dense"] if side**2 <= options.dense else ["eigsh"]
        results += [_in_own_process(kind, side) for kind in kinds]
    print(render(["", "n", "forward", "backward", "memory", "of 8nk bytes", "derivative"], [_row(r) for r in results]))
    if options.json:
        write_json(options.json, {"machine": machine(), "results": results})


def _row(r: dict[str, Any]) -> list[str]:
    share = r["memory"] * 2**20 / (8 * r["n"] * K)
    times = [f"{r[name]:.3g} s" for name in ("forward", "backward")]
    return [r["kind"], str(r["n"]), *times, f"{r['memory']:.0f} MB", f"{share:.1f}", f"{r['derivative']:.12g}"]
