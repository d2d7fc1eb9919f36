"""Data parallel by hand: every rank trains on its share, gradients are averaged over MPI.

    mpirun -n 2 python examples/two_ranks.py

Without mpirun it is the same program on one rank. No environment variables, no addresses.
"""

import tenon as torch
import tenon.distributed as dist
from tenon import nn
from tenon.nn.parallel import DistributedDataParallel

rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = torch.randn(256, 8)
labels = (data.sum(1) > 0).long()

net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
sampler = dist.DistributedSampler(data, shuffle=True, seed=0)

for epoch in range(10):
    sampler.set_epoch(epoch)
    own = torch.tensor(list(sampler))
    for rows in own.split(64 // size):
        loss = nn.functional.cross_entropy(net(data[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

hits = (net(data).argmax(1) == labels).float().mean()
weights = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
dist.all_reduce(total := weights.clone())
assert torch.allclose(total / size, weights), "ranks drifted apart"
if rank == 0:
    print(f"{size} rank(s), accuracy {hits.item():.3f}")
