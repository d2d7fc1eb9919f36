"""Rows of the table: recurrent layers in floating point."""

from __future__ import annotations

from tenon import ops
from tenon.extend import Condition, KernelRow, KernelTable
from tenon_cpu.onednn import available as onednn
from tenon_cpu.onednn import rnn

_WORK = f"{rnn.LEAST:,} multiplications of states or more; numba"
_IS_FASTER = Condition(
    "is_faster(w_hh, sizes)", _WORK, {"is_faster": rnn.is_faster}, "sum(sizes) * w_hh.size"
)
_PLAIN_STATES = Condition("w_hr is None", "states are not projected")


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    for name, kernel in rnn.KERNELS.items():
        op = getattr(ops, name)
        arrays = ", ".join(op.inputs)
        others = ", ".join(a for a in op.inputs if a not in ("w_hh", "w_hr"))
        projected = (_PLAIN_STATES,) if "w_hr" in op.inputs else ()
        supported = Condition(
            f"supported(w_hh, sizes, {others})", f"float32; {_WORK}", {"supported": rnn.is_supported}
        )
        short = Condition(
            f"short({arrays})", "floats of one dtype of 16 bits", {"short": rnn.one_short_dtype}
        )
        reference = op.raw_forward if op.residuals else op.decompose
        table.add(
            name,
            KernelRow("oneDNN, compiled loop", kernel, (*projected, supported), installed=onednn),
            KernelRow(
                "oneDNN, compiled loop in float32",
                rnn.in_float32(kernel),
                (short, *projected, _IS_FASTER),
                installed=onednn,
            ),
            KernelRow("reference, in float32", rnn.in_float32(reference), (short,), installed=onednn),
        )


__all__ = ["add_to"]
