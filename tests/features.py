"""What a test needs of torch and older versions do not have: the only list of tests that are skipped for a version.

Each feature is found out by asking torch, and is followed by what happens without it. Those that cannot be asked for
name the first version that was seen to have them.
"""

import pytest
import torch

_VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])

FEATURES = {
    "Muon": (hasattr(torch.optim, "Muon"), "torch.optim has no Muon"),
    "the tag for CUDA graphs": (
        hasattr(torch.Tag, "cudagraph_unsafe"),
        "torch has no tag that keeps an operator out of CUDA graphs",
    ),
    "strict export of vmap": (_VERSION >= (2, 8), "torch.export of a transform of torch.func needs strict=False"),
    "torch.lobpcg": (_VERSION >= (2, 8), "torch.lobpcg does not converge, which is an error of eigsh"),
    "sparse tensors in torch.func": (
        _VERSION >= (2, 10),
        "torch.func takes a sparse tensor for a dense one, which is an error of eigsh",
    ),
    "destruction of gloo": (_VERSION >= (2, 8), "destroy_process_group of gloo can deadlock in torch"),
}


def needs(feature: str) -> pytest.MarkDecorator:
    """Skip a test, with the reason, if torch lacks a feature."""
    present, reason = FEATURES[feature]
    return pytest.mark.skipif(not present, reason=f"torch {torch.__version__}: {reason}")
