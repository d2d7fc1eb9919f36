"""Copying past the caches: stores that do not first read the lines they replace, nor displace others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon_cpu.jit.compiler.compile import Function, Inlined, kernel

if TYPE_CHECKING:
    from numba.core.typing import Signature as Typed
    from numba.types import Type

BLOCK = 64
"""Bytes that are copied at a time, and the alignment of where they are copied to."""


class _Streaming(Inlined):
    """``copy_block(source, out, row)`` in a kernel copies one row of ``BLOCK`` bytes past the caches."""

    def _make_dispatcher(self) -> Function:
        from llvmlite import ir
        from numba.core import types
        from numba.extending import intrinsic

        vector = ir.VectorType(ir.IntType(64), 4)

        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # numba's, untyped
            marked = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
            source, out = (
                builder.bitcast(
                    builder.gep(
                        context.make_array(kind)(context, builder, value).data,
                        [builder.mul(values[2], ir.Constant(ir.IntType(64), BLOCK))],
                    ),
                    vector.as_pointer(),
                )
                for kind, value in zip(signature.args[:2], values[:2], strict=True)
            )
            for half in range(2):
                place = [ir.Constant(ir.IntType(64), half)]
                read = builder.load(builder.gep(source, place), align=1)
                stored = builder.store(read, builder.gep(out, place), align=32)
                stored.set_metadata("nontemporal", marked)
            return context.get_dummy_value()

        @intrinsic
        def copy_block(typing: object, source: Type, out: Type, row: Type) -> tuple[Typed, Function]:
            return types.void(source, out, types.int64), emit

        return copy_block


class _Fence(Inlined):
    """``fence()`` in a kernel: what was stored past the caches is visible to other threads from here on."""

    def _make_dispatcher(self) -> Function:
        from numba.core import types
        from numba.extending import intrinsic

        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # numba's, untyped
            builder.fence("seq_cst")
            return context.get_dummy_value()

        @intrinsic
        def fence(typing: object) -> tuple[Typed, Function]:
            return types.void(), emit

        return fence


def _copy_block(source: Any, out: Any, row: int) -> None:  # arrays of bytes
    """The copy as plain Python."""
    out[row] = source[row]


def _no_fence() -> None:
    """Plain Python needs none."""


copy_block, fence = _Streaming(_copy_block), _Fence(_no_fence)


@kernel("void(uint8[:,::1], uint8[:,::1], int64, int64)")
def stream(source, out, start, stop):
    """Copy rows of ``BLOCK`` bytes; ``out`` begins at a multiple of ``BLOCK``."""
    for row in range(start, stop):
        copy_block(source, out, row)
    fence()
