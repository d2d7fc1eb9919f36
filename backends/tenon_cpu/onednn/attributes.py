"""Attributes of a primitive: post-ops, scales and zero points, scratch memory.

A post-op is a tuple, its name first: ``("relu",)``, ``("linear", alpha, beta)``, ``("sum",)`` or
``("sum", scale)`` to add to the values that the output holds, ``("add", descriptor)`` and
``("mul", descriptor)`` with an operand that broadcasts. They run in order, in float32.
``post_op_argument(index)`` is the argument position of the operand of post-op ``index``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tenon.extend import errors
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.runtime import runtime
from tenon_cpu.onednn.signatures import ALGORITHMS, POST_OP, SCRATCHPAD_USER, SRC_1

#: A name and its parameters: numbers, or the descriptor of an operand.
PostOp = tuple[Any, ...]
ELTWISE = frozenset(
    {
        "relu", "tanh", "elu", "square", "abs", "sqrt", "linear", "soft_relu", "hardsigmoid", "logistic",
        "exp",
        "gelu_tanh", "swish", "log", "clip", "clip_v2", "pow", "gelu_erf", "round", "mish", "hardswish",
    }
)  # fmt: skip
BINARY = frozenset({"add", "mul", "max", "min", "div", "sub"})


def post_op_argument(index: int) -> int:
    """Return the argument position of the operand of binary post-op ``index``."""
    return POST_OP * (index + 1) | SRC_1


class Attributes:
    """A ``dnnl_primitive_attr_t`` with scratch memory supplied by the caller; destroyed with the object.

    ``scales`` and ``zero_points`` map an argument's position to a mask: 0 for one value, ``1 << axis`` for
    one per index of an axis. The values are arguments at ``SCALES + position`` and
    ``ZERO_POINTS + position``.
    """

    __slots__ = ("_destroy", "_operands", "handle")

    def __init__(
        self,
        post_ops: Sequence[PostOp] = (),
        scales: Mapping[int, int] | None = None,
        zero_points: Mapping[int, int] | None = None,
    ) -> None:
        here = runtime()
        self.handle = ctypes.c_void_p()
        here.call("dnnl_primitive_attr_create", ctypes.byref(self.handle))
        self._destroy = here.library.quick["dnnl_primitive_attr_destroy"]
        self._operands = post_ops
        here.call("dnnl_primitive_attr_set_scratchpad_mode", self.handle, SCRATCHPAD_USER)
        for position, mask in (scales or {}).items():
            here.call("dnnl_primitive_attr_set_scales_mask", self.handle, position, mask)
        for position, mask in (zero_points or {}).items():
            here.call("dnnl_primitive_attr_set_zero_points_mask", self.handle, position, mask)
        if post_ops:
            self._append(post_ops)

    def _append(self, post_ops: Sequence[PostOp]) -> None:
        here = runtime()
        chain = ctypes.c_void_p()
        here.call("dnnl_post_ops_create", ctypes.byref(chain))
        try:
            for name, *parameters in post_ops:
                if name == "sum":
                    here.call("dnnl_post_ops_append_sum", chain, *(parameters or (1.0,)), 0, 0)
                elif name in ELTWISE:
                    alpha, beta = (*parameters, 0.0, 0.0)[:2]
                    here.call("dnnl_post_ops_append_eltwise", chain, ALGORITHMS[name], alpha, beta)
                elif name in BINARY and len(parameters) == 1 and isinstance(parameters[0], Descriptor):
                    here.call("dnnl_post_ops_append_binary", chain, ALGORITHMS[name], parameters[0].handle)
                else:
                    raise errors.BackendError(
                        f"post-op {name!r} with {parameters} is unknown. Give sum, one of"
                        f" {', '.join(sorted(ELTWISE))} with up to two numbers, or one of"
                        f" {', '.join(sorted(BINARY))} with a Descriptor."
                    )
            here.call("dnnl_primitive_attr_set_post_ops", self.handle, chain)
        finally:
            here.call("dnnl_post_ops_destroy", chain)

    def __del__(self) -> None:
        self._destroy(self.handle)
