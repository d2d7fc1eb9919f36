"""PyTorch's path ``torch.distributed.tensor``: tensors sharded over a device mesh.

``distribute_tensor(x, mesh, [Shard(0)])`` gives each rank a part; ops on the result are those on ``x``. Start
reading at ``dtensor.py``; ``mesh_backend.py`` runs ops, ``propagation.py`` chooses placements,
``redistribution.py`` communicates.
"""

from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh
from tenon.distributed.tensor.creation import (
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from tenon.distributed.tensor.dtensor import DTensor
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "init_device_mesh",
    "ones",
    "rand",
    "randn",
    "zeros",
]
