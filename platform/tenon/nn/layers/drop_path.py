"""``DropPath``: drops whole residual branches, sample by sample. PyTorch has no such layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.errors import ModuleValueError
from tenon.nn import functional as F
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["DropPath"]


class DropPath(Module):
    """Stochastic depth (Huang et al., 2016): in training, ``x[N, ...]`` becomes 0 for each sample with
    probability ``drop_prob``; ``scale_by_keep`` divides the others by ``1 - drop_prob``.

    Random numbers are those of ``Dropout``: in a step with keys (``tenon.random.keyed``) they depend on the
    sample, not on its batch and rank.

    >>> import tenon
    >>> block, drop = tenon.nn.Linear(4, 4), tenon.nn.DropPath(0.1)
    >>> (lambda x: x + drop(block(x)))(tenon.ones(2, 4)).shape
    torch.Size([2, 4])
    """

    __constants__ = ("drop_prob", "scale_by_keep")

    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True) -> None:
        super().__init__()
        if not 0 <= drop_prob <= 1:
            raise ModuleValueError(f"drop_prob has to be between 0 and 1, but got {drop_prob}")
        self.drop_prob = drop_prob
        self.scale_by_keep = scale_by_keep

    def forward(self, x: Tensor) -> Tensor:
        """``x``, with dropped samples set to 0."""
        if not self.training or self.drop_prob == 0:
            return x
        scale = F.dropout(x.new_ones((x.shape[0],) + (1,) * (x.ndim - 1)), self.drop_prob)
        return x * (scale if self.scale_by_keep else scale * (1 - self.drop_prob))

    def extra_repr(self) -> str:
        """Probability and scaling."""
        return f"drop_prob={self.drop_prob}, scale_by_keep={self.scale_by_keep}"
