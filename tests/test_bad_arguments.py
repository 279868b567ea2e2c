"""N10: arguments of the wrong kind are refused by name, before anything is computed."""

import numpy as np
import pytest
import torch

import spectralgrad as sg
from spectralgrad.cli import main
from spectralgrad.optim import inverse_root, inverse_roots, optimal_rate

from .arguments import arguments_of, public_callables

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
    "mean with NaN": (lambda: _wasserstein(ZERO + NAN), NON_FINITE, "gaussian_wasserstein, mean2: expected finite"),
    "mean in a list": (lambda: _wasserstein([0.0, 0.0, 0.0]), SHAPE, "expected mean2 to be a torch.Tensor, got \\[0"),
    "one sample": (
        lambda: sg.frechet_distance(POINTS[:1], POINTS),
        SHAPE,
        r"frechet_distance, X: expected at least 2 samples for correction=1, got 1 \(shape \(1, 3\)\)",
    ),
    "one sample, second": (
        lambda: sg.frechet_distance(POINTS, POINTS[:1]),
        SHAPE,
        "frechet_distance, Y: expected at least 2 samples for correction=1, got 1",
    ),
    "samples in a vector": (lambda: sg.frechet_distance(ZERO, ZERO), SHAPE, r"expected samples \(\*, n, d\), got"),
    "correction": (
        lambda: sg.frechet_distance(POINTS, POINTS, correction="a"),
        ARGUMENT,
        "frechet_distance: expected correction to be an integer, got 'a'",
    ),
    "root p": (lambda: inverse_root(EYE, "a"), ARGUMENT, "inverse_root: expected p to be a number, got 'a'"),
    "roots p": (
        lambda: inverse_roots([EYE], "4"),
        ARGUMENT,
        "inverse_roots: expected p to be a number or a sequence with each item a number, got '4'",
    ),
    "eps": (lambda: inverse_root(EYE, 4, eps="a"), ARGUMENT, "inverse_root: expected eps to be a number, got 'a'"),
    "roots of one tensor": (
        lambda: inverse_roots(EYE, 4),
        SHAPE,
        "inverse_roots: expected matrices to be a sequence with each item a torch.Tensor, got a tensor",
    ),
    "relative without eps": (
        lambda: inverse_root(EYE, 4, relative=True),
        ARGUMENT,
        "inverse_root: expected eps > 0 with relative=True",
    ),
    "function of singular values": (
        lambda: sg.singular_value_function(EYE, "relu"),
        ARGUMENT,
        "singular_value_function: expected f to be a function, got 'relu'",
    ),
    "function of eigenvalues": (
        lambda: sg.matrix_function(EYE, None),
        ARGUMENT,
        "matrix_function: expected f to be a function, got None",
    ),
    "derivative": (
        lambda: sg.matrix_function(EYE, torch.tanh, 3),
        ARGUMENT,
        "matrix_function: expected df to be a function or None, got 3",
    ),
    "sub_batch 0": (lambda: sg.nn.WhiteningMSELoss(0), ARGUMENT, "expected sub_batch to be an integer ≥ 2, got 0"),
    "sub_batch of a letter": (
        lambda: sg.nn.WhiteningMSELoss("a"),
        ARGUMENT,
        "expected sub_batch to be an integer or None, got 'a'",
    ),
    "iterations": (
        lambda: sg.nn.WhiteningMSELoss(iterations=0),
        ARGUMENT,
        "expected iterations to be an integer ≥ 1, got 0",
    ),
    "method in place of B": (
        lambda: sg.eigh(EYE, "svd-taylor"),
        SHAPE,
        "eigh: expected B to be a torch.Tensor or None, got 'svd-taylor'; a method is passed as method=",
    ),
    "method object in place of B": (lambda: sg.eigh(EYE, sg.Taylor()), SHAPE, "a method is passed as method="),
    "eigsh, integers": (
        lambda: sg.eigsh(torch.eye(3, dtype=torch.int64).to_sparse(), 1),
        SHAPE,
        "eigsh, operator: expected a floating-point or complex tensor, got torch.int64",
    ),
    "eigsh, numpy": (lambda: sg.eigsh(np.eye(3), 1), SHAPE, "got a numpy array; convert it with torch.from_numpy"),
    "eigsh, size": (
        lambda: sg.eigsh(lambda X: X, 1, size="a"),
        ARGUMENT,
        "eigsh: expected size to be an integer or None, got 'a'",
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
        "eigsh: expected a tensor, an object with shape and matmul, or a callable as the operator, got str",
    ),
    "threshold NaN": (
        lambda: sg.singular_value_threshold(EYE, torch.tensor(NAN)),
        NON_FINITE,
        "singular_value_threshold, tau: expected finite",
    ),
    "exponent NaN": (lambda: sg.matrix_power(EYE, NAN), ARGUMENT, "matrix_power: expected p to be a number"),
    "exponents NaN": (lambda: sg.matrix_power(EYE, torch.tensor(NAN)), NON_FINITE, "matrix_power, p: expected finite"),
    "Newton-Schulz NaN": (lambda: sg.linalg.newton_schulz(NAN * EYE), NON_FINITE, "newton_schulz: expected finite"),
    "Newton-Schulz -I": (
        lambda: sg.linalg.newton_schulz(-EYE),
        sg.IndefiniteError,
        "newton_schulz: expected a positive semi-definite matrix, got eigenvalue -1",
    ),
    "projector -I": (
        lambda: sg.nn.functional.principal_projector(-EYE, 1, 0.0, sg.Pade()),
        ARGUMENT,
        "principal_projector: expected a covariance C",
    ),
    "rate of NaN": (lambda: optimal_rate(EYE, NAN * EYE), NON_FINITE, "optimal_rate, G: expected finite"),
    "weight NaN": (lambda: optimal_rate(NAN * EYE, EYE), NON_FINITE, "optimal_rate, W: expected finite"),
    "rtol True": (lambda: sg.matrix_sqrt(EYE, rtol=True), ARGUMENT, "expected rtol to be a number or None, got True"),
    "momentum NaN": (
        lambda: sg.nn.DecorrelatedBatchNorm2d(3, momentum=NAN),
        ARGUMENT,
        "DecorrelatedBatchNorm2d: expected momentum to be a number or None, got nan",
    ),
    "complex f": (
        lambda: sg.matrix_function(EYE, lambda x: 1j * x),
        ARGUMENT,
        "matrix_function: expected f to return real floating-point numbers, got torch.complex64",
    ),
    "means that do not broadcast": (
        lambda: sg.gaussian_wasserstein(torch.zeros(2, 3), EYE, torch.zeros(5, 3), EYE),
        SHAPE,
        r"gaussian_wasserstein, mean2: expected a mean \(\*, 3\)",
    ),
    "a kernel that is not square": (
        lambda: sg.nn.OrthogonalConv2d(3, 4, (3, 5)),
        ARGUMENT,
        r"OrthogonalConv2d: expected an odd kernel_size ≥ 1, the same for rows and columns, got \(3, 5\)",
    ),
}


def test_a_kernel_size_may_be_a_pair_as_in_torch():
    pair, number = sg.nn.OrthogonalConv2d(3, 4, (3, 3)), sg.nn.OrthogonalConv2d(3, 4, 3)
    assert pair.weight.shape == number.weight.shape
    assert pair.kernel_size == number.kernel_size == 3


CALLABLES = {
    name: (thing, parameters)
    for name, (thing, parameters) in public_callables().items()
    if parameters and next(iter(parameters.values())).annotation in ("Tensor", torch.Tensor)
}


@pytest.mark.parametrize("name", CALLABLES)
def test_numpy_arrays_are_refused_with_the_way_out(name):
    thing, parameters = CALLABLES[name]
    given = arguments_of(name, parameters) | {next(iter(parameters)): np.eye(3)}
    with pytest.raises(sg.SpectralError, match=r"torch\.from_numpy"):
        thing(**given)


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
