"""Communication hooks for ``DistributedDataParallel.register_comm_hook``, under torch's paths."""

from tenon.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook

__all__ = ["default_hooks", "post_localSGD_hook", "powerSGD_hook"]
