"""What backends state about arrays of which a process stores a part only; by default it stores them whole.

Another part of tenon asks these questions where it reads or writes the memory of arrays, as optimizers do.
``distributed/tensor/mesh_backend.py`` overrides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.device import Device
from tenon.engine.op import Op
from tenon.engine.types import Arguments, Array
from tenon.engine.value import Value


class WholeArrays:
    """Base of ``Backend``: answers for arrays that are whole."""

    #: The class of tensors that wrap this backend's arrays; None for Tensor itself.
    tensor_type: type[Value] | None = None
    #: The class of parameters made of such tensors; None for ``nn.Parameter`` itself.
    parameter_type: type[Value] | None = None

    @property
    def own(self) -> Any:  # a Backend
        """The backend of the arrays that this process stores: another one where arrays are sharded."""
        return self

    def empty_like(self, array: Array, dtype: np.dtype, device: Device) -> Array:
        """Return an uninitialised array of the shape of ``array``, and sharded as it is."""
        return self.empty(tuple(array.shape), dtype, device)  # type: ignore[attr-defined]

    def placed_as(self, like: Array, array: Array) -> Array:
        """Return ``array``, of the shape of ``like``, sharded as ``like`` is."""
        return array

    def whole(self, array: Array) -> Array:
        """``array`` as one of ``own`` that every process has; collective where it is sharded."""
        return array

    def joint_norm(self, arrays: Sequence[Array], order: float) -> Array | None:
        """The norm of order ``order`` of all elements of ``arrays``, an array of ``own``; collective. None
        where arrays are whole, or have no values: take the norm of each then."""
        return None

    def own_part(self, like: Array, array: Array) -> Array:
        """The part of ``array`` for the elements of ``like`` that are stored here; all of another shape."""
        return array

    def is_placed_as(self, like: Array, array: Array) -> bool:
        """Whether ``array`` is sharded as ``like`` is, so that ``own_part`` needs no communication."""
        return True

    def gather_arguments(self, op: Op, args: Arguments) -> Arguments | None:
        """Return ``args``, which are on several backends, as arguments of one; None: 0-d tensors move."""
        return None


def gathered(value: Any) -> Any:  # a Tensor
    """``value``, without history, as a tensor that every process has; collective where it is sharded."""
    backend = value._backend
    return value if backend.own is backend else Value.make(backend.whole(value.raw), backend.own)


def beside(like: Value, made: Value) -> Any:  # a Tensor
    """``made``, a constant on the device of ``like``; if ``like`` is sharded, on its mesh.

    It is sharded in the same way if the shapes are equal, else replicated.
    """
    backend = like._backend
    if backend.own is backend:
        return made
    array = backend.as_array(made.raw)
    if array.shape == like.raw.shape:
        array = backend.placed_as(like.raw, array)
    return Value.make(array, backend).requires_grad_(made._track)
