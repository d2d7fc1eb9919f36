"""Let the last rank do something else than the others, in every way that is noticed; write what each rank is told.

The argument is a folder: rank r writes ``r.json``, the message (or null) and the seconds of each case.
"""

import json
import sys
import time
from pathlib import Path

import tenon as torch
import tenon.distributed as dist
from tenon import nn
from tenon.errors import CollectiveMismatchError
from tenon.nn.parallel import DistributedDataParallel

communicator = dist.get_communicator()
other = communicator.rank == communicator.size - 1
a, b = torch.ones(3), torch.ones(3)
x = torch.ones(2, 4)


def network(dropout=0.0):
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(dropout), nn.Linear(4, 4))


def swapped():
    if other:
        dist.all_reduce(b)
        dist.all_reduce(a)
    else:
        dist.all_reduce(a)
        dist.all_reduce(b)


def swapped_in_a_loop():
    for tensor in (b, a) if other else (a, b):
        dist.all_reduce(tensor, async_op=True).wait()


def swapped_names():
    with dist.named("losses" if other else "counts"):
        dist.all_reduce(a)


def one_name():
    mine = torch.zeros(3)
    with dist.named("losses"):
        dist.all_reduce(mine) if other else dist.all_reduce(a)


def skipped_parameter():
    model = network()
    model(x).sum().backward()
    for name, parameter in model.named_parameters():
        if not (other and name == "0.weight"):
            dist.all_reduce(parameter.grad.data)


def missing_gradient():
    model = network()
    if not other:
        model(x).sum().backward()
    for parameter in model.parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(gradient)


def skipped_broadcast():
    for name, parameter in network().named_parameters():
        if not (other and name == "0.weight"):
            dist.broadcast(parameter.data, 0)


def two_models_swapped():
    losses = [DistributedDataParallel(network())(x).sum() for _ in range(2)]
    for loss in reversed(losses) if other else losses:
        loss.backward()


def two_models_swapped_with_a_hook():
    models = [DistributedDataParallel(network(), static_graph=True) for _ in range(2)]
    for model in models:
        model.register_comm_hook(None, "bf16")
        model(x).sum().backward()
    losses = [model(x).sum() for model in models]
    for loss in reversed(losses) if other else losses:
        loss.backward()


def two_sharded_optimizers_swapped():
    sharded = dist.optim.ZeroRedundancyOptimizer
    optimizers = [sharded(network().parameters(), torch.optim.SGD, lr=0.1) for _ in range(2)]
    for optimizer in reversed(optimizers) if other else optimizers:
        optimizer.step()


def another_layer():
    DistributedDataParallel(network(0.5 if other else 0.1))


def another_learning_rate():
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if other else 0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def another_learning_rate_in_a_static_graph():
    model = DistributedDataParallel(network(), static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if other else 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def another_sharded_optimizer():
    dist.optim.ZeroRedundancyOptimizer(network().parameters(), torch.optim.SGD, lr=0.2 if other else 0.1)


told = {}
for case in (
    swapped,
    swapped_in_a_loop,
    swapped_names,
    one_name,
    skipped_parameter,
    missing_gradient,
    skipped_broadcast,
    two_models_swapped,
    two_models_swapped_with_a_hook,
    two_sharded_optimizers_swapped,
    another_layer,
    another_learning_rate,
    another_learning_rate_in_a_static_graph,
    another_sharded_optimizer,
):
    begin = time.perf_counter()
    message = None
    try:
        case()
    except CollectiveMismatchError as error:
        message = str(error)
    told[case.__name__] = message, time.perf_counter() - begin
communicator.barrier()
Path(sys.argv[1], f"{communicator.rank}.json").write_text(json.dumps(told))
