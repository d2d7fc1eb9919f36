"""PyTorch's path ``torch.distributed.tensor``: the class of tensors spread over a mesh; there are none.

Code that asks whether a tensor is one gets the answer; making one is refused.
"""

from __future__ import annotations

from typing import Any

from tenon.errors import UnsupportedError

__all__ = ["DTensor"]


class DTensor:
    """A tensor spread over a mesh of devices: nothing here is one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Refused."""
        raise UnsupportedError(
            "DTensor: tensors are not spread over meshes of devices here. Every rank has whole tensors; to"
            " share the work of a step use nn.parallel.DistributedDataParallel, and for the optimizer's state"
            " distributed.optim.ZeroRedundancyOptimizer."
        )

    @staticmethod
    def from_local(*args: Any, **kwargs: Any) -> DTensor:
        """Refused."""
        return DTensor()
