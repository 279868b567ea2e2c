"""What the test of every argument knows: how to call each public function, and which odd values are legal where.

Callables, their parameters and kinds come from the signatures. Only what a signature cannot say is written here: an
example for each required argument, by its name, and the values that are accepted although they look odd.
"""

import inspect
import warnings

import numpy as np
import torch
from torch import nn

import spectralgrad as sg

PLACES = (sg, sg.linalg, sg.nn, sg.nn.functional, sg.optim, sg.training, sg.diagnostics)
_RESULTS = {"Finding", "Inspection", "Record", "Report"}  # made by the library, not by callers


def _spd():
    return torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]], dtype=torch.float64)


def _features():
    return torch.randn(4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def _network():
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), sg.nn.DecorrelatedBatchNorm1d(3), nn.Linear(3, 3))


def _folded():
    return nn.Sequential(nn.Linear(3, 3), sg.nn.DecorrelatedBatchNorm1d(3), nn.Linear(3, 3)).eval()


WEIGHT = nn.Parameter(torch.eye(3))

# An example for each required argument, by its name; "function.argument" where the name alone is ambiguous. The X and Y
# of layers and their functions are features.
EXAMPLES = {
    "A": _spd,
    "B": _spd,
    "C": _spd,
    "G": _spd,
    "M": _spd,
    "S": _spd,
    "W": _spd,
    "X": _spd,
    "Y": _spd,
    "cov1": _spd,
    "cov2": _spd,
    "operator": _spd,
    "mean1": lambda: torch.zeros(3, dtype=torch.float64),
    "mean2": lambda: torch.ones(3, dtype=torch.float64),
    "k": lambda: 1,
    "p": lambda: 2.0,
    "coupled_inverse_root.p": lambda: 2,
    "f": lambda: torch.tanh,
    "tau": lambda: 0.5,
    "eps": lambda: 1e-3,
    "keep": lambda: 2,
    "method": sg.Exact,
    "principal_projector.method": sg.Pade,
    "whitening": lambda: "zca",
    "matrices": lambda: [_spd(), _spd()],
    "matrix_of": lambda: sg.matrix_inv_sqrt,
    "weight": lambda: None,
    "bias": lambda: None,
    "model": _network,
    "net": _network,
    "fuse_whitening.net": _folded,
    "batches": lambda: [torch.randn(4, 3)],
    "renew_statistics.model": _network,
    "loss": lambda: lambda: WEIGHT.square().sum(),
    "parameters": lambda: [WEIGHT],
    "optimizer": lambda: torch.optim.SGD([WEIGHT], lr=0.1),
    "kind": lambda: sg.Taylor,
    "in_channels": lambda: 3,
    "out_channels": lambda: 3,
    "num_features": lambda: 3,
    "TokenPooling.X": lambda: _features().mT,
    "embed_dim": lambda: 3,
    "importance": lambda: torch.ones(4, 3, dtype=torch.float64),
    "DecorrelatedBatchNorm2d.X": lambda: _features()[..., None],
    "DecorrelatedBatchNorm3d.X": lambda: _features()[..., None, None],
    "PCADenoising2d.X": lambda: _features()[..., None],
    "WhiteningColoring2d.content": lambda: _features()[..., None],
    "x": lambda: _features()[..., None].float(),
    "apply_matrix.mean": lambda: torch.zeros(3, dtype=torch.float64),
    "apply_matrix.matrix": lambda: _spd()[None],
    "content": _features,
    "views": lambda: torch.randn(2, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    "hook": lambda: lambda layer, matrices: None,
}
# Optional arguments that a call needs, or that make it shorter.
SETTINGS = {
    "HybridSwitch": {"decay_epoch": lambda: 5},
    "DropCov": {"dtype": lambda: torch.float64},
    "TokenPooling": {"dtype": lambda: torch.float64},
    "color": {"style": _features},
    "wct": {"style": _features},
    "WhiteningColoring2d.forward": {"style": lambda: _features()[..., None]},
    "WhiteningMSELoss": {"sub_batch": lambda: None},
    "pre_spectral_layers": {"input": lambda: torch.randn(4, 3)},  # of the model
    "whitening_mse": {"sub_batch": lambda: None},
}

# Arguments that are handed on to the caller's own model or to torch.distributed, whose errors they get.
HANDED_ON = {"fuse_whitening.example", "renew_statistics.batches", "process_group"}
# Where numbers below zero mean something.
SIGNED = {"p", "power", "strength", "correction"}
UNSIGNED = {"coupled_inverse_root.p", "inverse_root.p", "inverse_roots.p", "schatten_norm.p"}
# Where tensors of booleans are meant.
FLAGS = {"mask"}
# Where infinity does: no clipping, no stopping rule, the largest singular value.
INFINITE = {"schatten_norm.p", "Clip.threshold", "Trunc.threshold", "PI.tolerance", "SVDPI.tolerance"}
# Functions in which NaN and infinity of the input reach the output, where they can be seen.
PASSING = {
    "apply_matrix.X",
    "covariance.X",
    "dropcov_rate.X",
    "dropcov_rate.importance",
    "orthogonality_loss.W",
    "upper_triangle.S",
    "OrthogonalConv2d.forward.x",
}


def odd_values():
    """Values of every kind, by name."""
    eye = torch.eye(3, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([eye, eye])
    return {
        "None": None,
        "text": "no such word",
        "true": True,
        "nan": float("nan"),
        "inf": float("inf"),
        "zero": 0,
        "minus": -1,
        "minus half": -0.5,
        "fraction": 1.5,
        "seven": 7,
        "imaginary": 1j,
        "list": [[1.0]],
        "empty list": [],
        "object": object(),
        "class": int,
        "numpy": np.eye(3),
        "nan tensor": torch.full((3, 3), float("nan"), dtype=torch.float64),
        "inf tensor": torch.full((3, 3), float("inf"), dtype=torch.float64),
        "nan scalar": torch.tensor(float("nan"), dtype=torch.float64),
        "vector": torch.ones(3, dtype=torch.float64),
        "wide": torch.ones(2, 5, dtype=torch.float64),
        "many": torch.ones(2, 2, 7, 7, 7, dtype=torch.float64),
        "integers": torch.eye(3, dtype=torch.int64),
        "flags": torch.ones(3, 3, dtype=torch.bool),
        "complex": eye.to(torch.complex128) * 1j,
        "float8": torch.eye(3).to(torch.float8_e5m2),
        "sparse": eye.to_sparse(),
        "nested": nested,
        "mkldnn": torch.eye(3).to_mkldnn(),
        "minus identity": -eye,
    }


def public_callables():
    """Name, callable and its parameters for every public function, constructor and ``forward``."""
    found = {}
    for place in PLACES:
        for name in place.__all__:
            thing = getattr(place, name)
            if not callable(thing) or name in _RESULTS or _is_result(thing):
                continue
            found[name] = (thing, _parameters(thing))
            if inspect.isclass(thing) and issubclass(thing, nn.Module) and thing is not sg.nn.SpectralModule:
                found[f"{name}.forward"] = (_forward(name, thing), _parameters(thing.forward, skip_first=True))
    return found


def _is_result(thing):
    return inspect.isclass(thing) and issubclass(thing, (BaseException, tuple))


def _parameters(thing, skip_first=False):
    found = list(inspect.signature(thing).parameters.values())[skip_first:]
    return {p.name: p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _forward(name, layer):
    def call(**arguments):
        return layer(**arguments_of(name, _parameters(layer)))(**arguments)

    return call


def arguments_of(name, parameters):
    """Examples of the required arguments, and the settings that a call needs."""
    base = name.removesuffix(".forward")
    found = {p.name: _example(base, p.name) for p in parameters.values() if p.default is inspect.Parameter.empty}
    return found | {key: make() for key, make in SETTINGS.get(name, {}).items()}


def _example(function, argument):
    if f"{function}.{argument}" in EXAMPLES:
        return EXAMPLES[f"{function}.{argument}"]()
    if argument in ("X", "Y") and function in (*sg.nn.__all__, *sg.nn.functional.__all__):
        return _features()
    if argument in EXAMPLES:
        return EXAMPLES[argument]()
    raise LookupError(f"add an example of {function}.{argument} to EXAMPLES in tests/arguments.py")
