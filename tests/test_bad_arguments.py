"""N10: arguments of the wrong kind are refused by name, before anything is computed."""

import numpy as np
import pytest
import torch

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.optim import inverse_root, inverse_roots

EYE, ZERO, NAN = torch.eye(3), torch.zeros(3), float("nan")
POINTS = torch.arange(12.0).reshape(4, 3).sin()
ARGUMENT, SHAPE, NON_FINITE = sg.ArgumentError, sg.ShapeError, sg.NonFiniteError


def _wasserstein(mean):
    return sg.gaussian_wasserstein(ZERO, EYE, mean, EYE)


REFUSED = {
    "procrustes, negative weight": (
        lambda: sg.procrustes(POINTS, POINTS, weights=torch.tensor([1.0, 2.0, -0.5, 1.0])),
        ARGUMENT,
        r"procrustes: expected weights ≥ 0, got -0\.5 at index \(2,\)",
    ),
    "procrustes, a vector": (
        lambda: sg.procrustes(ZERO, ZERO),
        SHAPE,
        r"expected points \(\*, n, k\), got",
    ),
    "mean with NaN": (lambda: _wasserstein(ZERO + NAN), NON_FINITE, "gaussian_wasserstein, means: expected finite"),
    "mean in a list": (lambda: _wasserstein([0.0, 0.0, 0.0]), SHAPE, "expected means to be a torch.Tensor, got list"),
    "one sample": (
        lambda: sg.frechet_distance(POINTS[:1], POINTS),
        SHAPE,
        r"frechet_distance: expected at least 2 samples, got 1 \(shape \(1, 3\)\)",
    ),
    "one sample, second": (
        lambda: sg.frechet_distance(POINTS, POINTS[:1]),
        SHAPE,
        "frechet_distance: expected at least 2 samples, got 1",
    ),
    "samples in a vector": (lambda: sg.frechet_distance(ZERO, ZERO), SHAPE, r"expected samples \(\*, n, d\), got"),
    "correction": (
        lambda: sg.frechet_distance(POINTS, POINTS, correction="a"),
        ARGUMENT,
        "frechet_distance: expected an integer correction, got 'a'",
    ),
    "root p": (lambda: inverse_root(EYE, "a"), ARGUMENT, "inverse_root: expected the root p to be a number, got 'a'"),
    "roots p": (
        lambda: inverse_roots([EYE], "4"),
        ARGUMENT,
        "inverse_roots: expected the root p to be a number, got '4'",
    ),
    "eps": (lambda: inverse_root(EYE, 4, eps="a"), ARGUMENT, "inverse_root: expected eps to be a number, got 'a'"),
    "roots of one tensor": (
        lambda: inverse_roots(EYE, 4),
        ARGUMENT,
        "inverse_roots: expected a list of matrices; for one tensor use inverse_root",
    ),
    "relative without eps": (
        lambda: inverse_root(EYE, 4, relative=True),
        ARGUMENT,
        "inverse_root: expected eps > 0 with relative=True",
    ),
    "function of singular values": (
        lambda: sg.singular_value_function(EYE, "relu"),
        ARGUMENT,
        "singular_value_function: expected a function f of singular values, such as torch.tanh, got 'relu'",
    ),
    "function of eigenvalues": (
        lambda: sg.matrix_function(EYE, None),
        ARGUMENT,
        "matrix_function: expected a function f of eigenvalues, such as torch.tanh, got None",
    ),
    "derivative": (
        lambda: sg.matrix_function(EYE, torch.tanh, 3),
        ARGUMENT,
        "matrix_function: expected a function df of eigenvalues, such as torch.tanh, got 3",
    ),
    "sub_batch 0": (lambda: sg.nn.WhiteningMSELoss(0), ARGUMENT, "expected sub_batch ≥ 2 or None, got 0"),
    "sub_batch of a letter": (lambda: sg.nn.WhiteningMSELoss("a"), ARGUMENT, "sub_batch ≥ 2 or None, got 'a'"),
    "iterations": (lambda: sg.nn.WhiteningMSELoss(iterations=0), ARGUMENT, "expected iterations ≥ 1, got 0"),
    "method in place of B": (
        lambda: sg.eigh(EYE, "svd-taylor"),
        SHAPE,
        "eigh: expected B to be a torch.Tensor, got 'svd-taylor'; a method is passed as method=",
    ),
    "method object in place of B": (lambda: sg.eigh(EYE, sg.Taylor()), SHAPE, "a method is passed as method="),
    "eigsh, integers": (
        lambda: sg.eigsh(torch.eye(3, dtype=torch.int64).to_sparse(), 1),
        SHAPE,
        "eigsh: expected a floating-point or complex dtype of torch, got torch.int64",
    ),
    "eigsh, numpy": (lambda: sg.eigsh(np.eye(3), 1), ARGUMENT, "got a numpy array; use torch.from_numpy first"),
    "eigsh, size": (
        lambda: sg.eigsh(lambda X: X, 1, size="a"),
        ARGUMENT,
        "eigsh: expected size to be an integer, got 'a'",
    ),
    "eigsh, no size": (lambda: sg.eigsh(lambda X: X, 1), ARGUMENT, "eigsh: expected size=n for a callable"),
    "eigsh, wrong shape": (
        lambda: sg.eigsh(lambda X: X[:1], 1, size=3),
        ARGUMENT,
        r"eigsh: expected an operator that maps \(3, 2\) to the same shape, got shape \(1, 2\)",
    ),
    "eigsh, None": (lambda: sg.eigsh(lambda X: None, 1, size=3), ARGUMENT, "to the same shape, got NoneType"),
    "eigsh, text": (
        lambda: sg.eigsh("A", 1),
        ARGUMENT,
        "eigsh: expected a tensor, an object with shape and matmul, or a callable, got str",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words) as caught:
        call()
    assert type(caught.value) is error


def test_zero_weights_and_numbers_of_numpy_are_accepted():
    sg.procrustes(POINTS, POINTS, weights=torch.tensor([0.0, 2.0, 0.5, 1.0]))
    assert torch.equal(inverse_root(4 * EYE, np.int64(2)), inverse_root(4 * EYE, 2))
    sg.nn.WhiteningMSELoss(np.int64(4))


@pytest.mark.parametrize("kind", ["text", "empty", "npz"])
def test_inspect_names_a_file_that_is_not_npy(kind, tmp_path, capsys):
    file = tmp_path / "x.npy"
    if kind == "npz":
        with file.open("wb") as stream:
            np.savez(stream, a=np.eye(2))
    else:
        file.write_text("a, b" if kind == "text" else "")
    assert main(["inspect", str(file)]) == 1
    assert f"{file} is not a .npy file" in capsys.readouterr().err
