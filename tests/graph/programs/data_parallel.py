"""Train data parallel on this rank's share, eagerly and compiled; rank 0 prints what both did on every rank.

``step`` averages gradients in every backward, ``accumulate`` lets two of three backwards pass without
(``no_sync``), ``scaled`` is a step with autocast and GradScaler, ``together`` all of these and gradients clipped to a
norm; ``model`` compiles only the wrapped module.
"""

import json
import sys

import numpy as np

import tenon
import tenon.distributed as dist
from tenon import nn, optim
from tenon.amp import GradScaler
from tenon.nn import functional as F
from tenon.nn.parallel import DistributedDataParallel

rank, size = dist.get_rank(), dist.get_world_size()


def batch(i, columns):
    rng = np.random.default_rng(1000 * i + rank)
    return tenon.tensor(rng.standard_normal((4, columns)).astype(np.float32))


def network():
    tenon.manual_seed(10 + rank)
    net = nn.Sequential(nn.Linear(5, 16, bias=False), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 3))
    return DistributedDataParallel(net, bucket_cap_mb=1e-3)


def train(way, compiled):
    model = network()
    half, accumulated = way in ("scaled", "together"), way in ("accumulate", "together")
    if way == "together":  # Adam's steps would be the same without clipping
        optimizer = optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    else:
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
    scaler = GradScaler("cpu", enabled=half, growth_interval=7)
    norms = []

    def backward(x, y):
        with tenon.autocast("cpu", dtype=tenon.bfloat16, enabled=half):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        return loss

    def step(*pairs):
        optimizer.zero_grad()
        if accumulated:
            with model.no_sync():
                backward(*pairs[:2])
                backward(*pairs[2:4])
        loss = backward(*pairs[-2:])
        norm = loss
        if way == "together":
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.2)
        scaler.step(optimizer)
        scaler.update()
        return loss, norm

    run = step
    if compiled and way == "model":
        model = tenon.compile(model, fullgraph=True)
    elif compiled:
        run = tenon.compile(step, fullgraph=True)
    losses = []
    for i in range(14):
        pairs = [batch(3 * i + j, columns) for j in range(3 if accumulated else 1) for columns in (5, 3)]
        loss, norm = run(*pairs)
        losses.append(loss.item())
        norms.append(norm.item())
    weights = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
    programs = run.programs if compiled and way != "model" else getattr(model, "programs", [])
    return {"losses": losses, "norms": norms, "weights": weights.tolist(), "programs": len(programs)}


found = {mode: train(sys.argv[1], mode == "compiled") for mode in ("eager", "compiled")}
everywhere = [None] * size
dist.all_gather_object(everywhere, found)
if rank == 0:
    print(json.dumps(everywhere))
