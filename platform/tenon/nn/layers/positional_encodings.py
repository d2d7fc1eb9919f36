"""Positional encodings: ``RoPE`` and ``SinusoidalPositions``. PyTorch has neither.

Both work along the last two axes, ``[..., L, D]``, and hold no state: nothing is added to state dicts, and
the angles are computed in float32 whatever the dtype of the model.
"""

from __future__ import annotations

import tenon.ops  # noqa: F401 - fills the op table
from tenon.dtypes import float32
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError, ShapeError
from tenon.nn.module import Module
from tenon.tensors.creation.ranges import arange
from tenon.tensors.tensor import Tensor

__all__ = ["RoPE", "SinusoidalPositions"]


def _angles(x: Tensor, dim: int, base: float, scale: float, offset: Tensor | int) -> Tensor:
    """Return angles ``[..., L, ceil(dim / 2)]``: positions, from ``offset`` on, times ``base ** (-2 i /
    dim)``."""
    positions = arange(x.shape[-2], dtype=float32, device=x.device)
    positions = positions + (offset.unsqueeze(-1) if isinstance(offset, Tensor) and offset.ndim else offset)
    rates = base ** (arange(0, dim, 2, dtype=float32, device=x.device) / -dim)
    return (positions * scale if scale != 1 else positions).unsqueeze(-1) * rates


class RoPE(Module):
    """Rotary position embedding (Su et al., 2021, "RoFormer"): rotates pairs of features by angles
    proportional to the position, so that products of queries and keys depend on their distance only.

    The first ``dim`` features of ``x[..., L, D]`` are rotated, the others unchanged. Pairs are ``(i, i + dim
    / 2)`` (GPT-NeoX, Hugging Face's Llama), or ``(2 i, 2 i + 1)`` with ``interleaved`` (RoFormer, GPT-J,
    Meta's Llama). ``scale`` multiplies the positions: 0.5 doubles the context length of a trained model.

    >>> import tenon
    >>> rope, keys = tenon.nn.RoPE(4), tenon.ones(1, 6, 4)
    >>> bool((rope(keys[:, 4:], offset=4) == rope(keys)[:, 4:]).all())
    True
    """

    __constants__ = ("dim", "base", "interleaved", "scale")

    def __init__(
        self, dim: int, base: float = 10000.0, *, interleaved: bool = False, scale: float = 1.0
    ) -> None:
        super().__init__()
        if dim <= 0 or dim % 2:
            raise ModuleValueError(f"RoPE: dim must be a positive even number, got {dim}.")
        self.dim = dim
        self.base = base
        self.interleaved = interleaved
        self.scale = scale

    def forward(self, x: Tensor, offset: Tensor | int = 0) -> Tensor:
        """``x`` with its features rotated. Its first position is ``offset``: a number, or integers ``[...]``
        that broadcast to the leading axes of ``x``."""
        if x.ndim < 2 or x.shape[-1] < self.dim:
            raise ShapeError(
                f"RoPE: expected [..., L, D] with D of at least {self.dim}, got {list(x.shape)}."
            )
        angles = _angles(x, self.dim, self.base, self.scale, offset)
        cos, sin = f.cos(angles), f.sin(angles)
        rotated = x[..., : self.dim].float() if x.dtype.itemsize == 2 else x[..., : self.dim]
        half = self.dim // 2
        if self.interleaved:
            first, second = rotated[..., 0::2], rotated[..., 1::2]
        else:
            first, second = rotated[..., :half], rotated[..., half:]
        parts = [first * cos - second * sin, second * cos + first * sin]
        if self.interleaved:
            result = f.stack(*parts, axis=x.ndim).flatten(-2)
        else:
            result = f.cat(*parts, axis=x.ndim - 1)
        result = result.to(x.dtype)
        return result if x.shape[-1] == self.dim else f.cat(result, x[..., self.dim :], axis=x.ndim - 1)

    def extra_repr(self) -> str:
        """Width and settings."""
        return f"{self.dim}, base={self.base}, interleaved={self.interleaved}, scale={self.scale}"


class SinusoidalPositions(Module):
    """Adds sines and cosines of the position to ``x[..., L, dim]`` (Vaswani et al., 2017): feature ``2 i``
    gets ``sin(position / base ** (2 i / dim))``, feature ``2 i + 1`` the cosine."""

    __constants__ = ("dim", "base")

    def __init__(self, dim: int, base: float = 10000.0) -> None:
        super().__init__()
        if dim <= 0:
            raise ModuleValueError(f"SinusoidalPositions: dim must be positive, got {dim}.")
        self.dim = dim
        self.base = base

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """``x`` plus the encodings of positions from ``offset`` on, a number or integers ``[...]``."""
        if x.ndim < 2 or x.shape[-1] != self.dim:
            raise ShapeError(f"SinusoidalPositions: expected [..., L, {self.dim}], got {list(x.shape)}.")
        angles = _angles(x, self.dim, self.base, 1, offset)
        waves = f.stack(f.sin(angles), f.cos(angles), axis=angles.ndim).flatten(-2)
        return x + waves[..., : self.dim].to(x.dtype)

    def extra_repr(self) -> str:
        """Width and base."""
        return f"{self.dim}, base={self.base}"
