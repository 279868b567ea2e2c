"""Recognise V f(λ) Vᴴ, and other products of the factors of a decomposition, in the equation of an einsum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_letters
from typing import Any, NamedTuple

_VECTORS = ("vectors", "scaled")


class Operand(NamedTuple):
    """An operand: ``role`` is its trace's role, or data if it has no trace; ``transposed`` if vectors are rows."""

    role: str
    transposed: bool = False


class Reading(NamedTuple):
    """What the result is.

    Attributes:
        meaning: ``function`` if vectors are contracted with vectors as in V f(λ) Vᴴ, with data or without; ``columns``
            or ``rows`` if the result still has vectors, and where.
        signs: positions of the data that are multiplied to vectors, as signs may be.
    """

    meaning: str
    signs: tuple[int, ...]


def equation_of(args: Sequence[Any]) -> str:
    """Return the equation of a call, which may be given as lists of numbers after each operand.

    Example:
        >>> equation_of(("ij,j->i", torch.eye(2), torch.ones(2)))
        'ij,j->i'
        >>> equation_of((torch.eye(2), [0, 1], torch.ones(2), [1], [0]))
        'ab,b->a'
    """
    if isinstance(args[0], str):
        return args[0]
    terms = ["".join("..." if n is Ellipsis else ascii_letters[n] for n in numbers) for numbers in args[1::2]]
    output = ["".join("..." if n is Ellipsis else ascii_letters[n] for n in args[-1])] if len(args) % 2 else []
    return "->".join([",".join(terms), *output])


def read(equation: str, operands: Sequence[Operand]) -> Reading | None:
    """Return what the einsum computes from the factors of one decomposition; None if it is something else.

    Letters that stand before the last two of a factor are batch dimensions.

    Example:
        >>> V, f, x = Operand("vectors"), Operand("values"), Operand("data")
        >>> read("ij,j,kj->ik", [V, f, V]).meaning                  # V f Vᵀ
        'function'
        >>> read("bi,...ij,...j,...kj->...bk", [x, V, f, V]).meaning
        'function'
        >>> read("ij,j,ik->jk", [V, f, V]) is None                  # f Vᵀ V
        True
        >>> read("bi,ij->bj", [x, V]).meaning                       # x V
        'columns'
    """
    parsed = _parsed(equation, len(operands))
    if parsed is None:
        return None
    terms, output = parsed
    vectors = [(term, operand) for term, operand in zip(terms, operands, strict=True) if operand.role in _VECTORS]
    values = [term for term, operand in zip(terms, operands, strict=True) if operand.role == "values"]
    batch = {letter for term, _ in vectors for letter in term[:-2]}
    same = {term[-1]: term[-2] for term in values if len(term) > 1 and term[-2] not in batch}  # a diagonal matrix
    *terms, output = ("".join(same.get(letter, letter) for letter in term) for term in (*terms, output))
    letters = {_vector_letter(term, operand) for term, operand in zip(terms, operands, strict=True)} - {""}
    if len(letters) != 1 or not 1 <= len(vectors) <= 2:
        return None
    (vector,) = letters
    data = [k for k, operand in enumerate(operands) if operand.role == "data" and vector in terms[k]]
    if any(terms[k][-1] != vector for k in data):
        return None
    meaning = _meaning(output, vector, len(vectors), operands)
    return None if meaning is None else Reading(meaning, tuple(data))


def _meaning(output: Sequence[str], vector: str, count: int, operands: Sequence[Operand]) -> str | None:
    if count == 2 and vector not in output:
        return "function"
    if count != 1 or vector not in output[-2:]:
        return None
    if len(output) == 1:  # x V or Vᵀ x: the order of the operands tells what was meant
        others = [operand for operand in operands if operand.role != "values"]
        return "columns" if others[0].role == "data" else "rows"
    return "columns" if output[-1] == vector else "rows"


def _parsed(equation: str, count: int) -> tuple[list[str], str] | None:
    """The letters of each operand and of the result; an ellipsis is left out, it stands for batch dimensions."""
    left, arrow, output = re.sub(r"\s|\.\.\.", "", equation).partition("->")
    terms = left.split(",")
    if len(terms) != count:
        return None
    once = sorted(letter for letter in set(left) - {","} if left.count(letter) == 1)
    return terms, output if arrow else "".join(once)


def _vector_letter(term: str, operand: Operand) -> str:
    """The letter that counts values and vectors, empty for data; the other one of the last two counts components."""
    if operand.role == "data":
        return ""
    return term[-2] if operand.role in _VECTORS and operand.transposed and len(term) > 1 else term[-1:]
