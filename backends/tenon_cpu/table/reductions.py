"""Rows of the table: reductions, scans and sorting along axes."""

from __future__ import annotations

from tenon.extend import Condition, KernelRow, KernelTable, itself, requires, size_at_least
from tenon_cpu.jit.eager_ops import along_axis as eager_along_axis
from tenon_cpu.jit.eager_ops import sums as eager_sums
from tenon_cpu.jit.eager_ops.calls import MIN_ELEMENTS
from tenon_cpu.kernels import direct, ordering, products
from tenon_cpu.table.conditions import LAST_AXIS, NO_OUT, floats, rank

#: Number of leading indices of argsort up to which they are found without sorting the row.
_FEW = 32
#: Elements from which sorting keys of value and index is faster than NumPy's sort of indices.
_KEYS = 1 << 10

_LARGE = (size_at_least("x", MIN_ELEMENTS), *floats("x"))
_AXES = Condition("axes", "there are axes to reduce", {}, "axes")
_DECLINED = "axes in the middle, short runs, other dtypes, and where numba is missing"


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    summed = (size_at_least("x", MIN_ELEMENTS), _AXES)
    table.add(
        "sum",
        KernelRow("compiled", eager_sums.sum, summed, _DECLINED),
        KernelRow("NumPy, add.reduce", direct.sum),
    )
    table.add(
        "mean",
        KernelRow("compiled", eager_sums.mean, summed, _DECLINED),
        KernelRow("NumPy, add.reduce", direct.mean),
    )
    table.add(
        "sum_to",
        KernelRow("nothing to sum", itself, (Condition("x.shape == shape", "x has that shape"),)),
        KernelRow("compiled", eager_sums.sum_to, (size_at_least("x", MIN_ELEMENTS),), _DECLINED),
        KernelRow("NumPy", direct.sum_to),
    )
    runs = requires(eager_along_axis.runs, "axes are the last ones, and hold 32 elements or more")
    for name in ("amax", "amin", "prod"):
        table.add(name, KernelRow("compiled", getattr(eager_along_axis, name), (NO_OUT, *_LARGE, runs)))
    table.add(
        "prod_of_others",
        KernelRow("compiled", eager_along_axis.prod_of_others, (*_LARGE, runs)),
        KernelRow(
            "NumPy, running products from both sides",
            products.prod_of_others,
            (_AXES, size_at_least("x", 1)),
        ),
    )
    squares = Condition("order == 2", "order is 2", {}, "order")
    table.add("vector_norm", KernelRow("compiled", eager_along_axis.vector_norm, (squares, *_LARGE, runs)))
    for name in ("cumsum", "cumprod"):
        table.add(name, KernelRow("compiled", getattr(eager_along_axis, name), _LARGE))
    for name in ("tril", "triu"):
        table.add(name, KernelRow("compiled", getattr(eager_along_axis, name), (rank("x", ">= 2"), *_LARGE)))
    few = Condition(f"stop is not None and 0 < stop <= {_FEW}", f"at most {_FEW} of each row", {}, "stop")
    table.add(
        "argsort",
        KernelRow("compiled, the first few", eager_along_axis.argsort, (few, LAST_AXIS, *_LARGE)),
        KernelRow(
            "NumPy, keys of value and index",
            ordering.argsort,
            (size_at_least("x", _KEYS),),
            "more than 33 bits of value, or 2**31 elements along the axis",
        ),
        KernelRow(
            "reference, of 16-bit floats as float32",
            ordering.argsort_short,
            (
                Condition(
                    "x.dtype.itemsize == 2 and x.dtype.kind in 'fV'", "x of 16-bit floats", {}, "x.dtype"
                ),
            ),
        ),
    )


__all__ = ["add_to"]
