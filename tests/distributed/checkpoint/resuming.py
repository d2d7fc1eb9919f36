"""``python resuming.py save|load KIND FOLDER``: train a model that is distributed in this way, and save it with its
optimizer, loader, schedule and random numbers; or load it into another one and continue. Prints the loss."""

import sys

import tenon as torch
import tenon.distributed as dist
from tenon import nn
from tenon.data import DataLoader, TensorDataset
from tenon.distributed import DistributedSampler, init_device_mesh
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from tenon.distributed.fsdp import FullyShardedDataParallel, fully_shard
from tenon.distributed.optim import ZeroRedundancyOptimizer
from tenon.nn.parallel import DistributedDataParallel

mode, kind, folder = sys.argv[1:]
size = dist.get_world_size()
torch.manual_seed(0 if mode == "save" else 1)
model = nn.Sequential(nn.Linear(6, 11), nn.LayerNorm(11), nn.ReLU(), nn.Linear(11, 3))
if kind in ("data", "zero"):
    model = DistributedDataParallel(model)
elif kind == "wrapper":
    model = FullyShardedDataParallel(model)
elif kind in ("sharded", "hybrid"):
    mesh = init_device_mesh("cpu", (size,) if kind == "sharded" else (2, size // 2))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
if kind == "zero":
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.05)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
generator = torch.Generator().manual_seed(3)
data = TensorDataset(torch.randn(96, 6, generator=generator), torch.randn(96, 3, generator=generator))
sampler = DistributedSampler(data, shuffle=True, seed=4)
loader = DataLoader(data, batch_size=12 // size, sampler=sampler)


def train(batches, steps):
    for _ in range(steps):
        x, y = next(batches)
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        total = torch.tensor(loss.item())
        dist.all_reduce(total, "mean")
    return total.item()


def states():
    parts = get_state_dict(model, optimizer)
    return {"model": parts[0], "optimizer": parts[1], "loader": loader, "schedule": schedule}


if mode == "save":
    batches = iter(loader)
    train(batches, 3)
    dcp.async_save({**states(), "random": dcp.RandomStates()}, checkpoint_id=folder).result()
else:
    state = {**states(), "random": dcp.RandomStates()}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    batches = iter(loader)
loss, drawn = train(batches, 3), torch.rand(1).item()
if dist.get_rank() == 0:
    print("loss", loss, optimizer.param_groups[0]["lr"], drawn, flush=True)
