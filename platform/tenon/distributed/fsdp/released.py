"""Memory of gathered parameters between forward and backward: what the graph saved of them is released.

Nodes of the autograd graph save weights, or views of weights such as ``weight.t()``. When a module's
parameters are released after forward, these arrays are replaced by a ``ReleasedArray``, and restored when the
parameters are gathered again for backward. Arrays that are saved in other ways, as by a custom Function,
simply keep their memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from tenon.distributed.tensor.sharded_array import ShardedArray
from tenon.engine.tape import LEAF, Node
from tenon.engine.types import Array, NumpyDType
from tenon.engine.value import FixedView, Value
from tenon.errors import UnsupportedError
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor


class ReleasedArray:
    """The array of a parameter that is not gathered: shape and dtype only; reading values raises."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: NumpyDType) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.ndim, self.nbytes, self.base = len(shape), 0, None

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise self._error()

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):  # protocols that NumPy looks for
            raise AttributeError(attribute)
        raise self._error()

    def _error(self) -> UnsupportedError:
        return UnsupportedError(
            f"parameter {self.name!r} of a fully_shard module is used while it is not gathered: its whole"
            " value exists inside of the module's forward and backward only. Call unshard() on the module"
            " first, or read the sharded parameter, module.get_parameter(...)."
        )


def local_of(array: Array) -> Array:
    """The part of ``array`` that this rank stores, if it is that of a DTensor; otherwise itself."""
    return array.local if isinstance(array, ShardedArray) else array


class SavedWeights:
    """The places in the graph where the parameters of one module group are saved."""

    def __init__(self) -> None:
        self._places: list[tuple[weakref.ref[Node], int]] = []

    def find(self, outputs: Iterable[Tensor], since: int, parameters: Iterable[Tensor]) -> None:
        """Note where the nodes behind ``outputs``, with numbers from ``since`` on, save ``parameters``."""
        self._places = [place for place in self._places if place[0]() is not None]
        own = {id(parameter) for parameter in parameters}
        for node in _nodes_behind(outputs, since):
            for position, value in enumerate(node.saved or ()):
                if value is not None and id(_leaf_of(value)) in own and _is_replayable(value):
                    self._places.append((weakref.ref(node), position))

    def release(self) -> None:
        """Drop the arrays; the parameters themselves hold a ``ReleasedArray`` already."""
        alive = []
        for reference, position in self._places:
            node = reference()
            if node is None or node.saved is None or node.args is None:
                continue  # freed: its backward pass is over
            value = node.saved[position]
            leaf = _leaf_of(value)
            _spread(value, leaf.raw)
            node.args[position] = leaf.raw
            alive.append((reference, position))
        self._places = alive

    def restore(self) -> None:
        """Put the arrays of the gathered parameters, and views of them, back."""
        for reference, position in self._places:
            node = reference()
            if node is not None and node.saved is not None and node.args is not None:
                value = node.saved[position]
                _review(value)
                node.args[position] = value.raw


def _nodes_behind(outputs: Iterable[Tensor], since: int) -> Iterator[Node]:
    """The nodes that lead to ``outputs`` and were recorded from number ``since`` on."""
    stack = [output._node for output in outputs if output._node is not None]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen or node.seq < since:
            continue
        seen.add(id(node))
        yield node
        stack += [edge[0] for edge in node.edges if edge is not None and edge[1] != LEAF]


def _leaf_of(value: Any) -> Any:  # a Value
    """The tensor that ``value`` is a view of, or itself."""
    return value if value._view is None else value._view[0]


def _is_replayable(value: Value) -> bool:
    """Whether ``value`` is a leaf, or a view of one by ops that can be called again."""
    while value._view is not None:
        if value._view[2].__class__ is FixedView:
            return False
        value = value._view[1]
    return True


def _spread(value: Value, array: Array) -> None:
    """Replace the array of a view, and of the views between it and its base."""
    while value._view is not None:
        value.raw = array
        value = value._view[1]


def _review(value: Value) -> None:
    """Compute a view of a parameter again, on the parameter's new memory."""
    view = value._view
    if view is None or not isinstance(local_of(value.raw), ReleasedArray):
        return
    _review(view[1])
    with no_grad():
        value.raw = view[2](view[1], **view[3]).raw
