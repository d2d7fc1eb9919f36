"""PyTorch's path ``torch.distributed.tensor.parallel``: tensor and sequence parallel training by a plan.

``parallelize_module(model, mesh, {"w1": ColwiseParallel(), "w2": RowwiseParallel()})`` shards the layers that
the plan names, in place. Start reading at ``api.py``; ``layers.py`` shards layers, ``prepare.py`` converts
inputs and outputs, ``loss.py`` is for sharded class scores.
"""

from tenon.distributed.tensor.parallel.api import parallelize_module
from tenon.distributed.tensor.parallel.layers import ColwiseParallel, RowwiseParallel, SequenceParallel
from tenon.distributed.tensor.parallel.loss import loss_parallel
from tenon.distributed.tensor.parallel.parallel_style import ParallelStyle
from tenon.distributed.tensor.parallel.prepare import (
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]
