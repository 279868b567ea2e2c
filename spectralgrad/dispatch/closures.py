"""Find the tensors that a callable captures, and call it with replacements.

The derivative of a solution that a solver computes needs the tensors on which the callable depends as explicit inputs.
A ``TorchFunctionMode`` sees the arguments of every torch function that the callable calls, and can exchange them. It
does not see into ``torch.autograd.Function.apply``; :meth:`Closure.hides_tensors` tells whether that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from . import function

Map = Callable[[Tensor], Tensor]


class Closure:
    """A callable of one tensor together with the other tensors that it uses.

    Args:
        call: the callable. It has to use the same tensors, as Python objects, whenever it is called.
        example: an argument; the callable is called once with it.

    Attributes:
        call: the callable.
        tensors: what it uses besides its argument.

    Example:
        >>> import torch
        >>> weight = torch.tensor([2.0, 3.0])
        >>> scaled = Closure(lambda x: weight * x, torch.ones(2))
        >>> [t is weight for t in scaled.tensors], scaled(torch.ones(2), [torch.zeros(2)])
        ([True], tensor([0., 0.]))
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, call: Map, example: Tensor) -> None:
        self.call = call
        with _Recorder(example) as recorder:
            call(example)
        self.tensors = tuple(recorder.found.values())

    def __call__(self, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """Call it with ``tensors`` in place of its own."""
        if all(new is old for new, old in zip(tensors, self.tensors, strict=True)):
            return self.call(x)
        with _Exchange({id(old): new for old, new in zip(self.tensors, tensors, strict=True)}):
            return self.call(x)

    def hides_tensors(self, example: Tensor) -> bool:
        """True if the result depends on a tensor with a gradient that could not be exchanged."""
        return function.tracked(self(example, [x.detach() for x in self.tensors]))


class _Recorder(TorchFunctionMode):
    """Collects the tensors given to torch functions that none of them made."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.made = {id(x): x for x in known}  # the tensors too, so that no id is used again
        self.found: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for x in _tensors((args, kwargs)):
            if id(x) not in self.made:
                self.found[id(x)] = x
        result = func(*args, **(kwargs or {}))
        self.made.update((id(x), x) for x in _tensors(result) if id(x) not in self.found)
        return result


class _Exchange(TorchFunctionMode):
    """Gives other tensors to torch functions than those that they are called with."""

    def __init__(self, instead: dict[int, Tensor]) -> None:
        super().__init__()
        self.instead = instead

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*self._exchanged(args), **self._exchanged(kwargs or {}))

    def _exchanged(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return self.instead.get(id(x), x)
        if type(x) in (tuple, list):
            return type(x)([self._exchanged(y) for y in x])
        if type(x) is dict:
            return {key: self._exchanged(y) for key, y in x.items()}
        return x


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        yield from _tensors(list(x.values()))
    elif isinstance(x, (tuple, list)):
        for y in x:
            yield from _tensors(y)
