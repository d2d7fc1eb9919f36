"""Rows of the table: 8-bit products, convolutions, pooling and recurrent layers."""

from __future__ import annotations

import numpy as np

from tenon.extend import Condition, KernelRow, KernelTable, requires
from tenon_cpu.jit.eager_ops.calls import FLOAT
from tenon_cpu.onednn import available as onednn
from tenon_cpu.onednn import int8_dynamic, int8_pooling, int8_rnn, int8_static
from tenon_cpu.onednn.int8 import LONGEST, generated

_ONEDNN, _GENERATED = "oneDNN, exact products of 8 bits", "generated, exact products of 8 bits"
_NO_EXACT = "where oneDNN has no exact kernel for these shapes"
#: An expression, as a predicate function with four arguments takes 0.2 us, and a product of one row 7 us.
_DYNAMIC = Condition(
    "x.dtype is float32 and scale.dtype is float32 and weight.dtype == int8 and x.size and weight.ndim == 2"
    f" and x.shape[-1] == weight.shape[1] and 0 < weight.shape[1] <= {LONGEST}"
    " and 0 < weight.shape[0] and scale.shape == weight.shape[:1]"
    " and (bias is None or (bias.dtype is float32 and bias.shape == scale.shape))",
    f"float32 arrays and a matrix of int8 that fit, rows of at most {LONGEST:,} elements",
    {"float32": FLOAT, "int8": np.dtype(np.int8)},
    "x.dtype, x.shape, weight.dtype, weight.shape",
)


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    table.add(
        "int8_dynamic_linear",
        KernelRow(_ONEDNN, int8_dynamic.by_onednn, (_DYNAMIC,), _NO_EXACT, int8_dynamic.installed),
        KernelRow(_GENERATED, int8_dynamic.by_generated, (_DYNAMIC,), installed=generated),
    )
    rows = requires(int8_static.takes_rows, "uint8 or float32 rows and a matrix of int8 that fit")
    table.add(
        "int8_linear",
        KernelRow(_ONEDNN, int8_static.linear_by_onednn, (rows,), _NO_EXACT, int8_static.linear_available),
        KernelRow(_GENERATED, int8_static.linear_by_generated, (rows,), installed=generated),
    )
    images = requires(int8_static.takes_images, "uint8 or float32 images and filters of int8 that fit")
    groups = requires(int8_static.words_support, "groups of enough channels")
    table.add(
        "int8_conv",
        KernelRow(_ONEDNN, int8_static.conv_by_onednn, (images,), _NO_EXACT, int8_static.conv_available),
        KernelRow(
            _GENERATED,
            int8_static.conv_by_generated,
            (images, groups),
            "a result without elements",
            generated,
        ),
    )
    table.add(
        "int8_max_pool",
        KernelRow(
            "oneDNN, of 8 bits",
            int8_pooling.int8_max_pool,
            (requires(int8_pooling.channels_lie_last, "channels-last images, not empty"),),
            "where oneDNN has only a slow kernel",
            onednn,
        ),
    )
    supported = requires(int8_rnn.is_supported, "float32 scales and biases, states that are not empty; numba")
    for name, (by_onednn, by_generated) in int8_rnn.KERNELS.items():
        table.add(
            name,
            KernelRow(f"{_ONEDNN}, compiled loop", by_onednn, (supported,), _NO_EXACT, int8_rnn.installed),
            KernelRow(f"{_GENERATED}, compiled loop", by_generated, (supported,), installed=generated),
        )


__all__ = ["add_to"]
