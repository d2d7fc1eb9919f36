"""Look up rows of a table by index."""

from __future__ import annotations

import numpy as np

from tenon.compat.saved_readers import always, attr
from tenon.dtypes import FROM_NUMPY
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import ShardingRule, numbered
from tenon.engine.types import Operand
from tenon.errors import DTypeError, IndexRangeError, ShapeError
from tenon.ops.dtype_queries import dtype_of
from tenon.ops.indexing import add_rows


def _check(weight: Operand, indices: Operand) -> None:
    if dtype_of(indices).name not in ("int64", "int32"):
        raise DTypeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int;"
            f" but got {FROM_NUMPY[dtype_of(indices)]} instead (while checking arguments for embedding). Use"
            " .long()."
        )
    if len(weight.shape) != 2:
        raise ShapeError(f"'weight' must be 2-D, got {list(weight.shape)} (embedding).")


def _check_range(low: int, high: int, rows: int) -> None:
    """Raise IndexRangeError unless indices from ``low`` to ``high`` are rows of the table."""
    if low < 0 or high >= rows:
        raise IndexRangeError(
            f"index out of range in self: embedding got index {low if low < 0 else high}, but the"
            f" table has {rows} rows (0 to {rows - 1}). Check num_embeddings and the vocabulary."
        )


class Embedding(Primitive):
    """``weight[indices]``, a copy; no gradient reaches row ``padding_idx`` (-1: none)."""

    kind = Kind.INDEX
    inputs = ("weight", "indices")
    saves = ("indices",)
    saved_names = {"scale_grad_by_freq": attr("by_frequency"), "sparse": always(False)}

    def sharding_rule(self, weight, indices, *, padding_idx=-1, by_frequency=False):
        """Rows of the result follow the indices, columns the table; parts of the table add up."""
        rows = numbered(indices.shape)
        return ShardingRule((("v", "d"), rows), ((*rows, "d"),), linear="first", looked_up="v")

    def masked(self, f, weight, indices, *, start, size, padding_idx=-1, by_frequency=False):
        """The rows that a part of the table has, and zeros."""
        _check(weight, indices)
        if indices.size and not isinstance(indices, Aval):
            _check_range(int(indices.min()), int(indices.max()), size)
        own = f.sub(indices, start)
        inside = f.logical_and(f.ge(own, 0), f.lt(own, weight.shape[0]))
        inside = f.reshape(inside, shape=(*indices.shape, 1))
        if not weight.shape[0]:
            return f.new_full(weight, shape=(*indices.shape, weight.shape[1]), value=0)
        safe = f.clamp(own, 0, weight.shape[0] - 1)
        return f.where(inside, f.embedding(weight, safe), 0)

    def infer(self, weight, indices, *, padding_idx=-1, by_frequency=False):
        """One row per index."""
        _check(weight, indices)
        return Aval((*indices.shape, weight.shape[1]), weight.dtype)

    def forward(self, xp, weight, indices, *, padding_idx=-1, by_frequency=False):
        """Check that every index is in range, then take the rows."""
        _check(weight, indices)
        rows = weight.shape[0]
        if indices.size:
            low, high = int(indices.min()), int(indices.max())
            _check_range(low, high, rows)
        return xp.take(weight, indices, axis=0)

    def vjp_weight(self, f, g, out, weight, indices, *, padding_idx=-1, by_frequency=False):
        return f.embedding_grad(
            g, indices, rows=weight.shape[0], padding_idx=padding_idx, by_frequency=by_frequency
        )


class EmbeddingGrad(Primitive):
    """The rows of ``g`` added up by index in a table of ``rows`` rows, divided by how often each index occurs
    if ``by_frequency``."""

    kind = Kind.INDEX
    inputs = ("g", "indices")
    saves = ("indices",)
    grad_name = "EmbeddingBackwardBackward0"
    computes_in_float32 = True

    def sharding_rule(self, g, indices, *, rows, padding_idx=-1, by_frequency=False):
        """Parts of the indices leave partial sums, unless those are divided by the frequencies."""
        own = numbered(indices.shape)
        reduction = "" if by_frequency else "sum"
        own = (None,) * len(own) if by_frequency else own
        return ShardingRule(((*own, "d"), own), ((None, "d"),), reduction, linear="first")

    def infer(self, g, indices, *, rows, padding_idx=-1, by_frequency=False):
        """The table's shape."""
        return Aval((rows, g.shape[-1]), g.dtype)

    def forward(self, xp, g, indices, *, rows, padding_idx=-1, by_frequency=False):
        """Add rows of equal indices."""
        flat, values = indices.reshape(-1), g.reshape(indices.size, g.shape[-1])
        result = xp.zeros((rows, g.shape[-1]), g.dtype)
        if padding_idx >= 0:
            valid = xp.not_equal(flat, padding_idx)
            flat, values = flat[valid], values[valid]
        if by_frequency and flat.size:
            values = values / xp.bincount(flat, minlength=rows)[flat][:, None].astype(g.dtype)
        if xp is np:
            add_rows(result, flat, values)
        else:
            xp.add.at(result, flat, values)
        return result

    def vjp_g(self, f, g, out, gradient, indices, *, rows, padding_idx=-1, by_frequency=False):
        return f.embedding_rows(g, indices, padding_idx=padding_idx, by_frequency=by_frequency)


class EmbeddingRows(Primitive):
    """The transpose of ``embedding_grad``: table rows by index, zeros for ``padding_idx``, divided by how
    often each index occurs if ``by_frequency``."""

    kind = Kind.INDEX
    inputs = ("weight", "indices")
    saves = ("indices",)

    def sharding_rule(self, weight, indices, *, padding_idx=-1, by_frequency=False):
        """Rows of the result follow the indices, columns the table."""
        if by_frequency:
            return None
        rows = numbered(indices.shape)
        return ShardingRule(((None, "d"), rows), ((*rows, "d"),), linear="first")

    def infer(self, weight, indices, *, padding_idx=-1, by_frequency=False):
        """One row per index."""
        return Aval((*indices.shape, weight.shape[1]), weight.dtype)

    def forward(self, xp, weight, indices, *, padding_idx=-1, by_frequency=False):
        """Take the rows, then scale them."""
        result = xp.take(weight, indices, axis=0)
        if padding_idx >= 0:
            result = result * xp.not_equal(indices, padding_idx)[..., None].astype(result.dtype)
        if by_frequency and indices.size:
            result = result / xp.bincount(indices.reshape(-1))[indices][..., None].astype(result.dtype)
        return result

    def vjp_weight(self, f, g, out, weight, indices, *, padding_idx=-1, by_frequency=False):
        return f.embedding_grad(
            g, indices, rows=weight.shape[0], padding_idx=padding_idx, by_frequency=by_frequency
        )


class OneHot(Primitive):
    """One-hot vectors of length ``classes`` on a new last axis; the range of ``indices`` is not checked."""

    kind = Kind.INDEX
    inputs = ("indices",)

    def sharding_rule(self, indices, *, classes):
        """Rows follow the indices."""
        own = numbered(indices.shape)
        return ShardingRule((own,), ((*own, None),))

    def infer(self, indices, *, classes):
        """int64."""
        return Aval((*indices.shape, classes), np.dtype(np.int64))

    def forward(self, xp, indices, *, classes):
        """Set one element of each row of zeros."""
        result = xp.zeros((indices.size, classes), np.int64)
        result[xp.arange(indices.size), indices.reshape(-1)] = 1
        return result.reshape(*indices.shape, classes)


one_hot = OneHot()
embedding, embedding_grad, embedding_rows = Embedding(), EmbeddingGrad(), EmbeddingRows()
