"""The plugin of optional parts of distributed training: Join, PowerSGD, local SGD, collectives of objects."""

from __future__ import annotations

from tenon.extend import hookimpl


@hookimpl
def tenon_comm_hooks() -> dict[str, str]:
    """Provide the names of communication hooks."""
    return {
        "powersgd": "tenon_distributed_extras.powersgd:powerSGD_hook",
        "batched_powersgd": "tenon_distributed_extras.powersgd:batched_powerSGD_hook",
    }


@hookimpl
def tenon_namespaces() -> dict[str, str]:
    """Provide the modules with PyTorch's names."""
    return {
        "distributed.join": "tenon_distributed_extras.join",
        "distributed.local_sgd": "tenon_distributed_extras.local_sgd",
        "distributed.object_collectives": "tenon_distributed_extras.object_collectives",
        "distributed.powersgd": "tenon_distributed_extras.powersgd",
    }
