"""A compiled step with collectives, in place and with gradients, gives what it gives eagerly."""

import numpy as np

import tenon
import tenon.distributed as dist
import tenon.distributed.nn.functional as F

rank, size = dist.get_rank(), dist.get_world_size()


def step(x, w):
    total = F.all_reduce(x @ w, "mean").tanh()
    loss = (total * (rank + 1)).sum() + F.all_gather(w)[0].square().sum()
    (gradient,) = tenon.autograd.grad(loss, w)
    dist.all_reduce(gradient)
    dist.broadcast(gradient, 1)
    return loss, gradient


draws = np.random.default_rng(rank)
compiled = tenon.compile(step)
for _ in range(6):
    x = tenon.tensor(draws.standard_normal((4, 3)).astype(np.float32))
    w = tenon.tensor(draws.standard_normal((3, 2)).astype(np.float32), requires_grad=True)
    expected, found = step(x, w), compiled(x, w)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)
if rank == 0:
    print("same" if compiled.programs else "never replayed")
