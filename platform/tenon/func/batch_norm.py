"""Batch norms that keep no statistics, so that a module is a function of its parameters and inputs."""

from __future__ import annotations

from typing import Any

from tenon.nn.layers.norm import _BatchNorm

__all__ = ["replace_all_batch_norm_modules_"]


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """``root``, whose batch norms now use each batch's own statistics and keep none: ``vmap`` over samples
    would have to write them. In place, as torch's."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
