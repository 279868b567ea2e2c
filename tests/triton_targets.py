"""Compiles the Triton kernels for a processor that need not exist here: ``python -m tests.triton_targets sm_90``.

Prints, for each kernel, its registers per thread, bytes or registers spilled to memory, bytes of shared memory, and the
seconds it took. The last line is the same as JSON.
"""

import contextlib
import io
import json
import re
import sys
import time

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from spectralgrad.solvers.devices import (
    launching,
    long_svd,
    point_sets,
    small_eigh,
    small_polar,
    small_roots,
    small_svd,
)
from spectralgrad.solvers.devices.kernels import eigh, points, polar, roots, svd, tall

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SINGLE, DOUBLE = torch.float32, torch.float64
NAMES = {SINGLE: "fp32", DOUBLE: "fp64"}
OTHERS = {
    "FAILED": "*i8",
    "STATE": "*i8",
    "E": "*i32",
    "zero": "fp32",
    "negative": "fp32",
    "limit": "fp32",
}  # lower case: i32


def cases(threads):
    """Name, kernel, type and what the compiler knows: the largest matrix of each layout, and the usual 3 × 3."""
    for d, dtype in ((3, SINGLE), (4, DOUBLE), (8, DOUBLE)):
        yield f"eigh {d}", eigh.eigh, dtype, small_eigh.plan(d, dtype, threads, True)
        yield f"svd {d}×{d}", svd.svd, dtype, small_svd.plan(d, d, dtype, threads)
        yield f"root {d}", roots.root, dtype, small_roots.plan(d, dtype, threads, True, True)
        yield f"derivative {d}", roots.derivative, dtype, small_roots.derivative_plan(d, threads, True)
    for n, dtype in ((3, SINGLE), (4, DOUBLE)):
        yield f"rotation {n}", polar.polar, dtype, small_polar.plan(n, dtype, threads, True)
        yield f"its derivative {n}", polar.derivative, dtype, small_polar.derivative_plan(n, threads)
    for n, dtype in ((3, SINGLE), (8, DOUBLE)):
        plan = long_svd.plan(1000, n, threads)
        yield f"factor 1000×{n}", tall.factor, dtype, {**plan, **launching.limits(dtype)}
        yield f"form 1000×{n}", tall.form, dtype, plan
    sets = {**point_sets.plan(100, 3, threads), "WEIGHTED": True}
    yield "cross-covariance 3", points.cross_covariance, SINGLE, {**sets, "CENTER": True}
    yield "distance 3", points.fit_distance, SINGLE, sets
    yield "point gradients 3", points.point_gradients, SINGLE, sets


def compiled(kernel, dtype, known, target):
    """The compiled kernel, and what the assembler printed."""
    known = dict(known)
    options = {"num_warps": known.pop("num_warps", 1), **launching.options(target.backend == "hip")}
    kinds = {
        name: "constexpr" if name in known else OTHERS.get(name, "*" + NAMES[dtype] if name.isupper() else "i32")
        for name in kernel.arg_names
    }
    kinds["B"] = "i32" if "B" in kinds else None
    signature = {name: kind for name, kind in kinds.items() if kind}
    triton.knobs.nvidia.dump_ptxas_log = triton.knobs.compilation.always_compile = True
    with contextlib.redirect_stdout(io.StringIO()) as log:
        found = triton.compile(ASTSource(kernel, signature, known), target=target, options=options)
    return found, log.getvalue()


def figures(found, log):
    """Registers per thread, what is spilled to memory, bytes of shared memory.

    AMD's scalar registers are spilled to vector registers, not to memory, and are not counted.
    """
    if "amdgcn" in found.asm:
        number = {name: int(x) for name, x in re.findall(r"\.(\w+):\s+(\d+)$", found.asm["amdgcn"], re.MULTILINE)}
        spilled = number["vgpr_spill_count"] + number["private_segment_fixed_size"]
        return number["vgpr_count"], spilled, found.metadata.shared
    spilled = sum(map(int, re.findall(r"(\d+) bytes (?:stack frame|spill)", log)))
    return int(re.search(r"Used (\d+) registers", log)[1]), spilled, found.metadata.shared


def main(name):
    target, rows = TARGETS[name], {}
    for case, kernel, dtype, known in cases(target.warp_size):
        start = time.perf_counter()
        rows[case] = figures(*compiled(kernel, dtype, known, target))
        registers, spilled, shared = rows[case]
        seconds = time.perf_counter() - start
        what = f"{name:7}{case:18}{NAMES[dtype]:5}{registers:4} registers {spilled:3} spilled {shared:4} shared"
        print(f"{what} {seconds:5.1f} s", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1])
