"""Indexing: basic (views), advanced (copies), their assignments, and gather/scatter along an axis.

``layout`` of the advanced ops is the key with ``INDEX`` where an index array goes and full slices
elsewhere; ``tenon/tensors/index_parsing.py`` brings every PyTorch key into that form.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tenon.compat.saved_readers import CUT, TAKEN, second
from tenon.engine.aval import Aval, shape_of
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import Factors, ShardingRule, pointwise
from tenon.engine.types import Operand
from tenon.errors import IndexRangeError, ShapeError
from tenon.kernels.shapes import broadcast_shapes
from tenon.ops.dtype_queries import in_float32
from tenon.ops.index_range import check_along, check_range, out_of_range, shape_mismatch
from tenon.tensors.index_parsing import INDEX, filled

_INT = np.dtype(np.int64)


class Index(Primitive):
    """``x[key]`` with integers, slices, None and Ellipsis only: a view."""

    kind = Kind.INDEX
    view = True
    saved_names = CUT

    def sharding_rule(self, x, *, key):
        """Axes that are taken whole are independent."""
        own, after = _factors_of_key(tuple(x.shape), key)
        return ShardingRule((own,), (after,), linear="jointly", moves=True)

    def infer(self, x, *, key):
        """The shape of the result of NumPy's indexing."""
        return Aval(_shape_only(x)[key].shape, x.dtype)

    def forward(self, xp, x, *, key):
        """NumPy's basic indexing."""
        return x[key]

    def vjp_x(self, f, g, out, x, *, key):
        return f.embed(g, shape=tuple(x.shape), key=key)

    def torch_name(self, args, attrs):
        """``SelectBackward0`` for an integer, ``UnsqueezeBackward0`` for None, else ``SliceBackward0``."""
        key = attrs["key"]
        if any(isinstance(k, int) for k in key):
            return "SelectBackward0"
        added = None in key and all(k is None or k is Ellipsis or k == slice(None) for k in key)
        return "UnsqueezeBackward0" if added else "SliceBackward0"


def _shape_only(x: Operand) -> np.ndarray:
    """Return a boolean array of the shape of ``x`` that takes one byte of memory."""
    return np.broadcast_to(np.empty((), np.bool_), tuple(x.shape))


def _factors_of_key(shape: tuple[int, ...], key: tuple[object, ...]) -> tuple[Factors, Factors]:
    """The factors of an array of ``shape`` and of its part ``x[key]``, which share the axes taken whole."""
    full = sum(k is not None and k is not Ellipsis for k in key)
    steps = list(key) if Ellipsis in key else [*key, Ellipsis]
    own: list[Hashable] = []
    after: list[Hashable] = []
    for step in steps:
        if step is None:
            after.append(None)
        elif step is Ellipsis:
            rest = range(len(own), len(own) + len(shape) - full)
            own += rest
            after += rest
        elif isinstance(step, slice):
            whole = step.indices(shape[len(own)]) == (0, shape[len(own)], 1)
            after.append(len(own) if whole else None)
            own.append(len(own) if whole else None)
        else:
            own.append(None)
    return tuple(own), tuple(after)


def _factors_along(shape: tuple[int, ...], other: tuple[int, ...], axis: int) -> Factors:
    """The factors of two arrays that meet along ``axis``: those of the other axes that have one size."""
    return tuple(
        a if a != axis and size == size_of_other else None
        for a, (size, size_of_other) in enumerate(zip(shape, other, strict=False))
    )


class Embed(Primitive):
    """Zeros of ``shape`` with ``x`` at ``key``: the transpose of ``index``."""

    kind = Kind.INDEX

    def sharding_rule(self, x, *, shape, key):
        """Axes that are filled whole are independent."""
        after, own = _factors_of_key(tuple(shape), key)
        return ShardingRule((own,), (after,), linear="jointly", shape_attr="shape")

    def infer(self, x, *, shape, key):
        """``shape`` in ``x``'s dtype."""
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, shape, key):
        """Allocate zeros, then assign."""
        result = xp.zeros(shape, x.dtype)
        result[key] = x
        return result

    def vjp_x(self, f, g, out, x, *, shape, key):
        return f.index(g, key=key)


class Take(Primitive):
    """``x`` at index arrays: advanced indexing, a copy."""

    kind = Kind.INDEX
    inputs = ("x", "*indices")
    saves = ("indices",)
    grad_name = "IndexBackward0"
    saved_names = TAKEN

    def sharding_rule(self, x, *indices, layout):
        """The other axes follow ``x``, those of the indices the indices."""
        indexed = [a for a, k in enumerate(layout) if k is INDEX]
        own = tuple(None if a in indexed else ("x", a) for a in range(len(x.shape)))
        shape = broadcast_shapes(*(tuple(i.shape) for i in indices))
        places = pointwise(indices, shape)
        rest = [f for a, f in enumerate(own) if a not in indexed]
        first = indexed[0] if indexed[-1] - indexed[0] == len(indexed) - 1 else 0
        after = (*rest[:first], *places.outputs[0], *rest[first:])
        return ShardingRule((own, *places.inputs), (after,), linear="first")

    def infer(self, x, *indices, layout):
        """The indexed axes are replaced by the broadcast shape of the indices."""
        try:
            shape = broadcast_shapes(*(tuple(i.shape) for i in indices))
        except ShapeError:
            shapes = ", ".join(str(list(i.shape)) for i in indices)
            raise IndexRangeError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
            ) from None
        indexed = [a for a, k in enumerate(layout) if k is INDEX]
        rest = [s for a, s in enumerate(x.shape) if a not in indexed]
        first = indexed[0] if indexed[-1] - indexed[0] == len(indexed) - 1 else 0
        return Aval((*rest[:first], *shape, *rest[first:]), x.dtype)

    def forward(self, xp, x, *indices, layout):
        """NumPy's advanced indexing."""
        try:
            if len(indices) == 1:
                return xp.take(x, indices[0], axis=layout.index(INDEX))
            # NumPy leaves the result in the memory order of its loop, of which no view() is possible.
            return xp.ascontiguousarray(x[filled(layout, indices)])
        except IndexError as error:
            raise out_of_range(x, layout, indices, error) from None

    def vjp_x(self, f, g, out, x, *indices, layout):
        return f.put(
            f.new_full(g, shape=tuple(x.shape), value=0, dtype=x.dtype),
            g,
            *indices,
            layout=layout,
            accumulate=True,
        )


class Put(Primitive):
    """A copy of ``x`` with ``y`` written (or added) at index arrays."""

    kind = Kind.INDEX
    inputs = ("x", "y", "*indices")
    saves = ("indices",)
    in_place = True
    grad_name = "IndexPutBackward0"
    reuses = (0,)

    def infer(self, x, y, *indices, layout, accumulate=False):
        """``x``'s own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, y, *indices, layout, accumulate=False, out=None):
        """Repeated indices add up when accumulating; otherwise the last one wins."""
        result = x.copy() if out is None else out
        key = filled(layout, indices)
        try:
            if not accumulate:
                result[key] = y
            elif len(indices) == 1 and layout[0] is INDEX and xp is np:
                add_rows(result, indices[0], y)
            else:
                xp.add.at(result, key, y)
        except IndexError as error:
            raise out_of_range(x, layout, indices, error) from None
        except ValueError as error:
            raise shape_mismatch(x, y, layout, indices, error) from None
        return result

    def vjp_x(self, f, g, out, x, y, *indices, layout, accumulate=False):
        if accumulate:
            return g
        hole = f.new_full(g, shape=tuple(y.shape) if hasattr(y, "shape") else (), value=0, dtype=g.dtype)
        return f.put(g, hole, *indices, layout=layout)

    def vjp_y(self, f, g, out, x, y, *indices, layout, accumulate=False):
        return f.sum_to(f.take(g, *indices, layout=layout), shape=tuple(y.shape))


def add_rows(target: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Add ``values`` to ``target[rows]``, also for repeated rows.

    Sorting and segment sums are many times faster than ``add.at``.
    """
    flat = np.asarray(rows).reshape(-1)
    if flat.size == 0:
        return
    values = np.broadcast_to(values, (*np.shape(rows), *target.shape[1:])).reshape(
        flat.size, *target.shape[1:]
    )
    flat = np.where(flat < 0, flat + target.shape[0], flat)
    if flat.min() < 0 or flat.max() >= target.shape[0]:
        raise IndexRangeError(
            f"index out of range: indices span {flat.min()}..{flat.max()}, size is {target.shape[0]}."
        )
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    wide = values.astype(np.float32) if values.dtype.kind == "V" or values.dtype == np.float16 else values
    sums = np.add.reduceat(wide[order], starts, axis=0)
    target[ordered[starts]] += sums.astype(target.dtype, copy=False)


class Gather(Primitive):
    """``out[i][j] = x[index[i][j]][j]`` for ``axis=0``, and so on (torch.gather)."""

    kind = Kind.INDEX
    inputs = ("x", "index")
    saves = ("index",)
    saved_names = {"indices": second}

    def sharding_rule(self, x, index, *, axis):
        """Other axes of equal size are independent; parts of the axis add up."""
        own = _factors_along(x.shape, index.shape, axis)
        if len(x.shape) != len(index.shape) or not x.shape or x.dtype == np.bool_:
            return ShardingRule((own, own), (own,), linear="first")
        whole = (*own[:axis], "looked up", *own[axis + 1 :])
        return ShardingRule((whole, own), (own,), linear="first", looked_up="looked up")

    def masked(self, f, x, index, *, start, size, axis):
        """What a part of the axis has, and zeros."""
        if not isinstance(index, Aval):
            check_range(np, self.name, index, size, axis)
        count = x.shape[axis]
        if not count:
            return f.new_full(x, shape=tuple(index.shape), value=0)
        own = f.sub(index, start)
        inside = f.logical_and(f.ge(own, 0), f.lt(own, count))
        return f.where(inside, f.gather(x, f.clamp(own, 0, count - 1), axis=axis), 0)

    def infer(self, x, index, *, axis):
        """The index's shape."""
        check_along(self.name, x, index, axis)
        return Aval(tuple(index.shape), x.dtype)

    def forward(self, xp, x, index, *, axis):
        """``take_along_axis`` over the part of ``x`` that the index covers."""
        if not x.ndim:
            return x.reshape(1)[index].reshape(index.shape)
        self.infer(x, index, axis=axis)
        if not index.size:
            return xp.empty(index.shape, x.dtype)
        if not index.ndim:
            return self.forward(xp, x, index.reshape(1), axis=axis).reshape(())
        check_range(xp, self.name, index, x.shape[axis], axis)
        window = tuple(slice(None) if a == axis else slice(0, s) for a, s in enumerate(index.shape))
        return xp.take_along_axis(x[window], index, axis)

    def vjp_x(self, f, g, out, x, index, *, axis):
        zeros = f.new_full(g, shape=tuple(x.shape), value=0, dtype=g.dtype)
        return f.scatter(zeros, index, g, axis=axis, reduce="add")


class Scatter(Primitive):
    """A copy of ``x`` with ``y`` written at ``index`` along ``axis``; ``reduce`` combines it with the
    present element."""

    kind = Kind.INDEX
    inputs = ("x", "index", "y")
    saves = ("index",)
    plain = True
    reuses = (0,)
    autocast_cuda = "widest"

    def sharding_rule(self, x, index, y, *, axis, reduce=None):
        """Other axes of equal size are independent."""
        own = _factors_along(x.shape, index.shape, axis)
        shape = shape_of(y)
        if shape and shape != tuple(index.shape):
            return None
        return ShardingRule((own, own, own if shape else ()), (own,))

    def infer(self, x, index, y, *, axis, reduce=None):
        """``x``'s own aval."""
        check_along(self.name, x, index, axis)
        if hasattr(y, "shape") and any(i > s for i, s in zip(index.shape, y.shape, strict=False)):
            raise ShapeError(
                f"Expected index {list(index.shape)} to be no larger than src {list(y.shape)} apart from"
                f" dimension {axis}"
            )
        return Aval(x.shape, x.dtype)

    @in_float32
    def forward(self, xp, x, index, y, *, axis, reduce=None):
        """Write in index order; "add" and "multiply" apply repeated indices once each."""
        self.infer(x, index, y, axis=axis, reduce=reduce)
        result = xp.array(x)
        if index.size == 0:
            return result
        target, rows = result, index
        if not x.ndim or not index.ndim:  # 0-d arrays are treated as vectors
            target, rows = result.reshape(-1), index.reshape(-1)
        check_range(xp, self.name, rows, target.shape[axis], axis)
        grid = list(xp.ogrid[tuple(slice(0, s) for s in rows.shape)])
        grid[axis] = rows
        values = y[tuple(slice(0, s) for s in index.shape)] if getattr(y, "ndim", 0) else y
        if reduce is None:
            target[tuple(grid)] = values
        else:
            getattr(
                xp, {"add": "add", "multiply": "multiply", "amax": "maximum", "amin": "minimum"}[reduce]
            ).at(target, tuple(grid), values)
        return result

    def vjp_x(self, f, g, out, x, index, y, *, axis, reduce=None):
        if reduce == "add":
            return g
        return f.scatter(g, index, 0.0, axis=axis)

    def vjp_y(self, f, g, out, x, index, y, *, axis, reduce=None):
        return f.window_of(f.gather(g, index, axis=axis), shape=tuple(y.shape))


class WindowOf(Primitive):
    """``x`` at the first indices of zeros of a larger ``shape``."""

    kind = Kind.INDEX
    view = True
    identity = True

    def infer(self, x, *, shape):
        """``shape``."""
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, shape):
        """The input itself if it has that shape already."""
        if x.shape == tuple(shape):
            return x
        result = xp.zeros(shape, x.dtype)
        result[tuple(slice(0, s) for s in x.shape)] = x
        return result

    def vjp_x(self, f, g, out, x, *, shape):
        return f.index(g, key=tuple(slice(0, s) for s in x.shape))


index, embed, take, put = Index(), Embed(), Take(), Put()
gather, scatter, window_of = Gather(), Scatter(), WindowOf()
