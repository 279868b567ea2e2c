"""A method in one word."""

import ast
import re
from dataclasses import fields

import pytest

import spectralgrad as sg
from spectralgrad.rules import METHODS, resolve

from .documents import ROOT, text


@pytest.mark.parametrize("name", METHODS)
def test_a_name_is_the_method_with_its_defaults(name):
    operation = next(iter(METHODS[name].operations))
    assert resolve(name, operation) == METHODS[name]()
    assert str(METHODS[name]()) == name


@pytest.mark.parametrize(
    ("word", "method"),
    [
        ("svd-taylor:degree=19", sg.Taylor(degree=19)),
        ("svd-clip:threshold=10.0:relative=True", sg.Clip(threshold=10.0, relative=True)),
        ("svd-topn:keep=206", sg.TopN(keep=206)),
        ("newton-schulz:steps=7:normalize=frobenius:backward=lyapunov",
         sg.NewtonSchulz(steps=7, normalize="frobenius", backward="lyapunov")),
        ("svd-pade:floor=1e-05", sg.Pade(floor=1e-5)),
        ("svd-pi:eps=0.0", sg.SVDPI(eps=0.0)),
    ],
)  # fmt: skip
def test_words_and_objects_say_the_same(word, method):
    assert resolve(word, "sqrt") == method
    assert str(method) == word


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("svd-tailor:degree=3", "unknown method 'svd-tailor'"),
        ("svd-taylor:order=3", "degree=9"),
        ("svd-taylor:degree", "PARAMETER=VALUE"),
        ("svd-taylor:degree=3.5", "degree to be a whole number, got '3.5'"),
        ("svd-taylor:degree=-1", "degree"),
        ("svd-clip:relative=perhaps", "true or false"),
        ("newton-schulz:normalize=max", "'trace' or 'frobenius'"),
        ("newton-schulz:on_residual=print", "PARAMETER=VALUE"),
        ("exact:degree=3", "no parameters"),
    ],
)
def test_a_word_that_means_nothing_is_refused(word, said):
    with pytest.raises(sg.MethodError, match=said):
        resolve(word, "sqrt")


def test_layers_and_functions_take_them():
    layer = sg.nn.DecorrelatedBatchNorm2d(4, method="svd-taylor:degree=19")
    assert layer.method == sg.Taylor(degree=19)
    assert "svd-taylor:degree=19" in repr(layer)


def documented(name):
    """The call in the method's section of ``docs/methods.md`` that states its parameters."""
    section = text(ROOT / "docs" / "methods.md").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    kind = METHODS[name].__name__
    found = re.search(rf"`(sg\.{kind}\([^`]*\))`", section)
    assert found, f"docs/methods.md: state the parameters of {name} in its section: `sg.{kind}(name=default, …)`"
    return ast.parse(found[1], mode="eval").body


@pytest.mark.parametrize("name", METHODS)
def test_defaults_are_the_documented_ones(name):
    written = {keyword.arg: ast.literal_eval(keyword.value) for keyword in documented(name).keywords}
    assert {
        field.name: getattr(METHODS[name](), field.name) for field in fields(METHODS[name]) if field.init
    } == written


@pytest.mark.parametrize(
    "word",
    ["svd-topn:keep=1", "svd-taylor:degree=0", "svd-pi:iterations=1", "masked:tolerance=0.0",
     "newton-schulz:steps=1", "svd-newton:steps=1", "svd-pade:degree=2",
     "mtp:degree=1", "mpa:degree=1", "mtp:lyapunov_steps=1", "mpa:lyapunov_steps=1"],
)  # fmt: skip
def test_the_smallest_sensible_setting_is_taken_and_the_next_smaller_refused(word):
    name, field, value = word.replace("=", ":").split(":")
    assert str(resolve(word, next(iter(METHODS[name].operations)))) == word
    smaller = float(value) - 1 if "." in value else int(value) - 1
    with pytest.raises(sg.MethodError, match=f"expected {field} ≥ {int(float(value))}.*, got {smaller}"):
        METHODS[name](**{field: smaller})
