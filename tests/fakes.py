"""Fake tensors on a device: shapes, types and devices without values, and without the device.

In torch's build for the CPU a few methods need CUDA itself, even for fake tensors. :data:`METHODS` replaces them by
operations that do the same. So do backward passes, which abort the process; they are tested on the pretended device.
"""

import copy
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from spectralgrad.diagnostics.every_function import matrix
from spectralgrad.diagnostics.every_layer import layer_and_input


def leaves(results):
    return [x for x in torch.utils._pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def indexed(x, index):
    """``x[index]`` for numbers, slices, None, ... and tensors."""
    index = list(index) if isinstance(index, tuple) else [index]
    if ... in [i if i is None or i is ... else 0 for i in index]:
        at = next(k for k, i in enumerate(index) if i is ...)
        given = sum(i is not None for i in index) - 1
        index[at : at + 1] = [slice(None)] * (x.dim() - given)
    dim, tensors = 0, []
    for i in index:
        if i is None:
            x = x.unsqueeze(dim)
        elif isinstance(i, int):
            x, dim = x.select(dim, i), dim - 1
        elif isinstance(i, slice):
            x = torch.ops.aten.slice(x, dim, i.start, i.stop, i.step or 1)
        else:
            tensors += [None] * (dim - len(tensors)) + [i]
        dim += 1
    return torch.ops.aten.index(x, tensors) if tensors else x


def copied(x, source, non_blocking=False):
    """``x.copy_(source)`` as far as it can fail: shapes and devices."""
    torch.broadcast_to(source, x.shape)
    assert source.device in (x.device, torch.device("cpu"))
    return x


METHODS = {"__getitem__": indexed, "__invert__": lambda x: torch.bitwise_not(x), "copy_": copied}


def of_function(call, device, grad):
    """Results of a function for a fake matrix, its fake gradient, and real results on the CPU."""
    expected = leaves(call(matrix().float()))
    with mock.patch.multiple(torch.Tensor, **METHODS), FakeTensorMode():
        A = torch.empty(4, 4, device=device, requires_grad=grad)
        return differentiated(leaves(call(A)), A), expected


def of_layer(name, training, device, grad):
    """Results of a layer whose parameters and buffers are fake, for fake features, and real results on the CPU."""
    layer, X = layer_and_input(name, torch.float32)
    layer.train(training)
    fake = copy.deepcopy(layer)
    expected = leaves(layer(X))
    with mock.patch.multiple(torch.Tensor, **METHODS), FakeTensorMode():
        for module in fake.modules():
            for kind in (module._parameters, module._buffers):
                for key, x in kind.items():
                    if x is not None:
                        made = torch.empty(x.shape, dtype=x.dtype, device=device)
                        kind[key] = torch.nn.Parameter(made, grad) if kind is module._parameters else made
        X = torch.empty(X.shape, device=device, requires_grad=grad)
        return differentiated(leaves(fake(X)), X), expected


def differentiated(results, X):
    """The results, and the gradient of ``X`` if there is one."""
    with_gradient = [x for x in results if x.requires_grad]
    if with_gradient:
        torch.autograd.backward(with_gradient, [torch.ones_like(x) for x in with_gradient])
    return results, X


def require(found, expected, device):
    """Shapes, types and devices are right, also of the gradient."""
    results, X = found
    assert [(x.shape, x.dtype, x.device.type) for x in results] == [(x.shape, x.dtype, device) for x in expected]
    if X.requires_grad and X.grad is not None:
        assert (X.grad.shape, X.grad.dtype, X.grad.device.type) == (X.shape, X.dtype, device)
    return X.grad is not None
