"""Batch norms without running statistics, so that a module is a function of its parameters and inputs."""

from __future__ import annotations

from tenon.nn.layers.norm import _BatchNorm
from tenon.nn.module import Module

__all__ = ["replace_all_batch_norm_modules_"]


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Remove the running statistics of all batch norms of ``root``, in place; return ``root``.

    They then use those of each batch: ``vmap`` over samples could not update running statistics.
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
