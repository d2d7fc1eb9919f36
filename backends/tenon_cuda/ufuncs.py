"""Binary ufuncs with the methods that CuPy's lack: ``reduce``, ``accumulate`` and ``at``."""

from __future__ import annotations

import math
from collections.abc import Callable

from tenon.extend import Array, ArrayNamespace, Operand
from tenon_cuda.segments import combine_rows, flat_indices, running


class Ufunc:
    """A ufunc of the library, with NumPy's ``reduce``, ``accumulate`` and ``at``."""

    def __init__(self, xp: ArrayNamespace, function: Callable[..., Array], reduction: str | None) -> None:
        self._xp = xp
        self._function = function
        self._reduction = reduction

    def __call__(self, *args: Operand, **kwargs: object) -> Array:
        """Apply the library's function element by element."""
        return self._function(*args, **kwargs)

    def reduce(
        self,
        array: Array,
        axis: int | tuple[int, ...] | None = 0,
        keepdims: bool = False,
        out: Array | None = None,
    ) -> Array:
        """Reduce over ``axis``: an axis, a tuple of axes, or None for all; an empty tuple returns a copy."""
        if axis == ():
            return array.copy()
        if self._reduction is None:
            raise NotImplementedError(f"{self._function!r} has no reduction")
        result = getattr(self._xp, self._reduction)(array, axis=axis, keepdims=keepdims)
        if out is None:
            return result
        out[...] = result
        return out

    def accumulate(self, array: Array, axis: int = 0) -> Array:
        """The inclusive scan along ``axis``."""
        return running(self._xp, array, axis, self._function)

    def at(self, array: Array, key: Array | tuple[Array | slice, ...], values: Operand) -> None:
        """``array[key] = self(array[key], values)``, where each repeated index counts.

        ``key`` is an index array or a tuple of index arrays and full slices.
        """
        xp, parts = self._xp, key if isinstance(key, tuple) else (key,)
        indexed = [axis for axis, part in enumerate(parts) if not isinstance(part, slice)]
        other_axes = [axis for axis in range(array.ndim) if axis not in indexed]
        arrays = xp.broadcast_arrays(*(parts[axis] for axis in indexed))
        together = indexed[-1] - indexed[0] == len(indexed) - 1
        first = sum(axis < indexed[0] for axis in other_axes) if together else 0
        other_sizes = tuple(array.shape[axis] for axis in other_axes)
        shape = (*other_sizes[:first], *arrays[0].shape, *other_sizes[first:])
        values = values if hasattr(values, "ndim") else xp.asarray(values, dtype=array.dtype)
        broadcast = xp.broadcast_to(values.astype(array.dtype, copy=False), shape)
        lead = tuple(range(first, first + arrays[0].ndim))
        broadcast = broadcast.transpose((*lead, *(a for a in range(len(shape)) if a not in lead)))

        order = (*indexed, *other_axes)
        transposed = xp.ascontiguousarray(array.transpose(order))
        sizes = tuple(array.shape[axis] for axis in indexed)
        # Explicit sizes: -1 is ambiguous where an axis is empty.
        target = transposed.reshape((math.prod(sizes), *other_sizes))
        rows = flat_indices(xp, sizes, tuple(arrays))
        combine_rows(xp, target, rows, broadcast.reshape((rows.size, *other_sizes)), self._function)
        back = tuple(sorted(range(array.ndim), key=order.__getitem__))
        array[...] = transposed.transpose(back)
