"""PyTorch's path ``torch.distributed.tensor``: the class of tensors sharded over a device mesh.

Tensors are not sharded here: the class exists for ``isinstance``, and its constructor raises.
"""

from __future__ import annotations

from tenon.errors import UnsupportedError

__all__ = ["DTensor"]


class DTensor:
    """A tensor sharded over a device mesh; no tensor here is an instance."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(
            "DTensor: tensors distributed over a device mesh are not supported. Every rank has whole tensors;"
            " to share the work of a step use nn.parallel.DistributedDataParallel, and for the optimizer's"
            " state distributed.optim.ZeroRedundancyOptimizer."
        )

    @staticmethod
    def from_local(*args: object, **kwargs: object) -> DTensor:
        """Raise ``UnsupportedError``."""
        return DTensor()
