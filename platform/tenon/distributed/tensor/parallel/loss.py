"""``loss_parallel``: losses of class scores that are sharded along the classes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tenon.distributed.tensor.mesh_backend import IMPLICIT, Implicit


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """In the ``with`` block ``cross_entropy`` and ``nll_loss`` of a DTensor take a plain target and weight,
    which are taken to be the same on all ranks.

    The scores ``[N, C, ...]`` may be sharded along the classes, as a ``ColwiseParallel`` head with
    ``use_local_output=False`` returns them: no rank gathers them, also not in the backward pass, whether or
    not it is in the block. The scores may be sharded along the batch by other dimensions of the mesh, for all
    reductions; then the target is a DTensor that is sharded alike.

    Source: torch.distributed.tensor.parallel.loss_parallel.

    >>> import tenon
    >>> from tenon.distributed import init_device_mesh
    >>> from tenon.distributed.tensor import Shard, distribute_tensor
    >>> scores = distribute_tensor(tenon.zeros(2, 4), init_device_mesh("cpu", (1,)), [Shard(1)])
    >>> with loss_parallel():
    ...     loss = tenon.nn.functional.cross_entropy(scores, tenon.tensor([0, 3]))
    >>> loss.full_tensor()
    tensor(1.3863)
    """
    before = IMPLICIT.get()
    token = IMPLICIT.set(Implicit.CLASS_LOSSES if before is Implicit.NONE else before)
    try:
        yield
    finally:
        IMPLICIT.reset(token)
