"""Schemes that store weights as int8, int4 or bfloat16, and one that also multiplies in bfloat16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tenon.extend import errors, settings
from tenon_compress.quantize.bfloat16_layers import BFLOAT16
from tenon_compress.quantize.integers import from_int4, from_int8, to_int4, to_int8
from tenon_compress.quantize.scheme import Scheme, WeightScheme

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Module


class Int8Weights(WeightScheme):
    """int8 with one scale for each output."""

    name = "int8-weights"

    def encode(self, weight: Tensor) -> Mapping[str, Tensor]:
        """Return ``values`` and ``scale``."""
        values, scale = to_int8(weight)
        return {"values": values, "scale": scale}

    def decode(self, shape: tuple[int, ...], **parts: Tensor) -> Tensor:
        """Return their product."""
        return from_int8(**parts)


class Int4Weights(WeightScheme):
    """Two weights in a byte, with one float16 scale for each ``group`` of a row."""

    name = "int4-weights"

    def __init__(self, group: int = 32) -> None:
        self.group = settings.whole("Int4Weights", "group", group, least=2)
        if self.group % 2:
            raise errors.ArgumentError(
                f"Int4Weights: group must be even, two weights to a byte, got {group}."
            )

    def encode(self, weight: Tensor) -> Mapping[str, Tensor]:
        """Return ``packed`` and ``scale``."""
        packed, scale = to_int4(weight, self.group)
        return {"packed": packed, "scale": scale}

    def decode(self, shape: tuple[int, ...], **parts: Tensor) -> Tensor:
        """Unpack the integers and multiply them by their scales."""
        return from_int4(**parts, shape=shape)


class BFloat16Weights(WeightScheme):
    """The first 16 bits of float32."""

    name = "bfloat16-weights"

    def encode(self, weight: Tensor) -> Mapping[str, Tensor]:
        """Return ``half``."""
        return {"half": weight.bfloat16()}

    def decode(self, shape: tuple[int, ...], **parts: Tensor) -> Tensor:
        """Convert to float32."""
        return parts["half"].float()


class BFloat16(Scheme):
    """``Linear`` and convolutions, transposed ones too, multiply in bfloat16 where the processor supports it.

    Elsewhere they, and everywhere all other layers, store bfloat16 weights and compute as before.
    """

    name = "bfloat16"

    def layer(self, module: Module) -> Module | None:
        """Return the bfloat16 layer for the class of ``module``, or itself with bfloat16 weights."""
        kind = BFLOAT16.get(type(module))
        return BFloat16Weights().layer(module) if kind is None else kind.of(module)
