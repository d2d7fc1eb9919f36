"""Policies of ``fully_shard``: in which dtypes a module computes and reduces, and where its shards are."""

from __future__ import annotations

from dataclasses import dataclass

from tenon.dtypes import dtype
from tenon.errors import ArgumentError

__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a module's computation; shards, gradients and the optimizer keep those of the parameters.

    ``param_dtype``: parameters are gathered, and the module computes, in it; floating inputs of ``forward``
    are cast to it if ``cast_forward_inputs``. ``reduce_dtype``: gradients are reduced in it; by default in
    ``param_dtype``. ``output_dtype``: floating outputs of ``forward`` are cast to it. None changes nothing.
    Sums over ranks of 16-bit floats are accumulated in float32.

    Source: torch.distributed.fsdp.MixedPrecisionPolicy.
    """

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    output_dtype: dtype | None = None
    cast_forward_inputs: bool = True

    def __post_init__(self) -> None:
        for name in ("param_dtype", "reduce_dtype", "output_dtype"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, dtype) and value.is_floating_point):
                raise ArgumentError(
                    f"MixedPrecisionPolicy({name}={value!r}): pass a floating dtype, such as torch.bfloat16,"
                    " or None."
                )


@dataclass
class OffloadPolicy:
    """No offloading: shards are on the device of the mesh. The base class of offload policies."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Shards, their gradients and the optimizer's state are on the CPU; gathered parameters on the device.

    On the CPU itself there is no difference. ``pin_memory`` has no effect.
    """

    pin_memory: bool = True
