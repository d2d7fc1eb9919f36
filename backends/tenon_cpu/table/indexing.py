"""Rows of the table: embeddings, gathers and scatters."""

from __future__ import annotations

from tenon.extend import Condition, KernelRow, KernelTable, requires, size_at_least
from tenon_cpu.jit.eager_ops import along_axis as eager_along_axis
from tenon_cpu.jit.eager_ops import spatial as eager_spatial
from tenon_cpu.jit.eager_ops import tables as eager_tables
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS
from tenon_cpu.table.conditions import floats, indices

_OUTSIDE = "an index out of bounds: the reference raises the error"
_LARGE = (size_at_least("x", MIN_ELEMENTS), *floats("x"))


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    table.add(
        "embedding",
        KernelRow(
            "compiled",
            eager_tables.embedding,
            (
                Condition(
                    f"weight.ndim == 2 and indices.size * weight.shape[1] >= {MIN_ELEMENTS}",
                    f"a result of {MIN_ELEMENTS:,} elements or more",
                    {},
                    "indices.shape, weight.shape",
                ),
                indices("indices"),
                *floats("weight"),
            ),
            _OUTSIDE,
        ),
    )
    table.add(
        "embedding_grad",
        KernelRow(
            "compiled, in the order of the indices",
            eager_tables.embedding_grad,
            (
                size_at_least("g", MIN_ELEMENTS),
                Condition("not by_frequency", "not scaled by frequency"),
                Condition("g.shape[:-1] == indices.shape", "a row for each index", {}, "g.shape"),
                indices("indices"),
                *floats("g"),
            ),
        ),
    )
    table.add(
        "segment_sum",
        KernelRow("compiled, row by row", eager_tables.segment_sum, _LARGE, "invalid offsets"),
    )
    one = Condition("len(indices) == 1", "one array of indices", {}, "len(indices)")
    table.add(
        "take",
        KernelRow(
            "compiled",
            eager_along_axis.take,
            (
                Condition("layout[0].__class__ is slice", "the first axis is not indexed", {}, "layout"),
                one,
                *_LARGE,
            ),
            _OUTSIDE,
        ),
    )
    table.add(
        "put",
        KernelRow(
            "compiled, in the order of the indices",
            eager_along_axis.put,
            (
                Condition("accumulate", "values are accumulated"),
                Condition(
                    "getattr(y, 'dtype', None) is float32",
                    "y of float32",
                    {"float32": FLOAT},
                    "getattr(y, 'dtype', None)",
                ),
                Condition("(out is None or out.flags.carray)", "out is in C order"),
                one,
                *_LARGE,
            ),
            _OUTSIDE,
        ),
    )
    table.add(
        "gather",
        KernelRow(
            "compiled",
            eager_spatial.gather,
            (
                requires(
                    eager_spatial.covers_other_axes,
                    "a large float32 array whose other axes the indices cover",
                ),
            ),
            _OUTSIDE,
        ),
    )
    table.add(
        "scatter",
        KernelRow(
            "compiled",
            eager_spatial.scatter,
            (requires(eager_spatial.can_scatter, "large float32 arrays whose other axes the indices cover"),),
            _OUTSIDE,
        ),
    )
    table.add("scatter_prod", KernelRow("scatter, multiplied", eager_spatial.scatter_prod))
    table.add("scatter_extreme", KernelRow("scatter, of the extreme", eager_spatial.scatter_extreme))


__all__ = ["add_to"]
