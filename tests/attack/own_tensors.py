"""Legal programs of ranks that pass tensors, items and batches of their own: none may be reported.

Each is a function of whether this rank deviates.
"""

import random

import tenon as torch
import tenon.distributed as dist
import tenon.distributed.nn.functional as F
from tenon import nn


def pair():
    return torch.full((3,), 1.0), torch.full((3,), 2.0)


def reduce(t):
    dist.all_reduce(t)


def spread(t):
    dist.broadcast(t, 0)


def receive_buffer(other):
    a = torch.ones(3)
    b = torch.zeros(3)
    tensor = a if dist.get_rank() == 0 else b
    dist.broadcast(tensor, 0)


def receive_buffer_wrapped(other):
    a = torch.ones(3)
    b = torch.zeros(3)
    spread(a if dist.get_rank() == 0 else b)
    if dist.get_rank() == 0:
        spread(a)
    else:
        spread(b)


def zeros_for_missing(other):
    g = [torch.ones(3), torch.ones(3)]
    z = torch.zeros(3)
    have = [not other, True]
    for i in range(2):
        dist.all_reduce(g[i] if have[i] else z)


def zeros_for_a_missing_item(other):
    z = torch.zeros(3)
    g = [None if other else torch.ones(3), torch.ones(3)]
    for t in g:
        reduce(t if t is not None else z)


def new_zeros(other):
    g = [None if other else torch.ones(3), torch.ones(3)]
    for t in g:
        if t is None:
            t = torch.zeros(3)
        reduce(t)


def another_variable_by_rank(other):
    if other:
        src = torch.ones(3)
        t = src
    else:
        dst = torch.zeros(3)
        t = dst
    dist.all_reduce(t)


def loss_branches(other):
    x = torch.ones(3)
    if other:
        loss = x * 2
        dist.all_reduce(loss)
    else:
        loss = x * 3
        dist.all_reduce(loss)


def wrapper_branches_same_name(other):
    if other:
        loss = torch.ones(3)
        reduce(loss)
    else:
        loss = torch.zeros(3)
        reduce(loss)


def two_functions_by_rank(other):

    def master():
        t = torch.ones(3)
        spread(t)

    def worker():
        buf = torch.zeros(3)
        spread(buf)

    worker() if other else master()


def pipeline_parts(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    parts = [torch.ones(3) for _ in range(n)]
    outs = [torch.zeros(3) for _ in range(n)]
    dist.all_gather(outs, parts[r])
    reduce(parts[r])


def rotated_list(other):
    items = [torch.ones(3) for _ in range(3)]
    for _ in range(4):
        for t in items:
            reduce(t)
        items.append(items.pop(0))


def coalesced_own_zero(other):
    g = [torch.ones(3), torch.ones(3)]
    z = torch.zeros(3)
    dist.all_reduce_coalesced([z if other else g[0], g[1]])


def coalesced_pairs_in_branches(other):
    if other:
        x = torch.ones(3)
        y = torch.ones(3)
        dist.all_reduce_coalesced([x, y])
    else:
        x = torch.ones(3)
        y = torch.ones(3)
        dist.all_reduce_coalesced([x, y])


def double_buffer(other):
    a, b = pair()
    for _i in range(4):
        dist.all_reduce(a)
        a, b = (b, a)


def own_batches(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    total = torch.zeros(3)
    batches = [(torch.ones(3), i) for i in range(4 * n)]

    def step(batch, total):
        dist.all_reduce(total)

    for batch in batches[r::n]:
        step(batch, total)


def own_indices(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    total = torch.zeros(3)

    def step(i, total):
        dist.all_reduce(total)

    for i in range(r, 4 * n, n):
        step(i, total)


def own_files(other):
    r, _n = (dist.get_rank(), dist.get_world_size())
    total = torch.zeros(3)

    def step(total, path):
        dist.all_reduce(total)

    for path in [f"part-{r}-{k}" for k in range(3)]:
        step(total, path=path)


def own_items_expression(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    data = [torch.ones(3) for i in range(4 * n)]

    def loss(i):
        return data[i].sum()

    for i in range(r, 4 * n, n):
        dist.all_reduce(loss(i))


def own_batches_expression(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    data = [torch.ones(3) for i in range(4 * n)]
    m = nn.Linear(3, 1)
    for x in data[r::n]:
        F.all_reduce(m(x))


def own_batches_weighted(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    data = [(torch.ones(3), i) for i in range(4 * n)]
    m = nn.Linear(3, 1)
    for x, y in data[r::n]:
        F.all_reduce(m(x) * y)


def own_batches_of_pairs(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    data = [(torch.ones(3), i) for i in range(4 * n)]
    m = nn.Linear(3, 1)
    for pair_ in data[r::n]:
        F.all_reduce(m(pair_[0]))


def method_step(other):

    class T:
        def __init__(s):
            s.total = torch.zeros(3)

        def step(s, i):
            dist.all_reduce(s.total)

    t = T()
    r, n = (dist.get_rank(), dist.get_world_size())
    for i in range(r, 4 * n, n):
        t.step(i)


def metrics_own(other):
    r, n = (dist.get_rank(), dist.get_world_size())

    def average(value, count):
        t = torch.tensor([value, count])
        dist.all_reduce(t)
        return t[0] / t[1]

    for i in range(r, 4 * n, n):
        average(float(i), i)


def dict_of_own_ids(other):
    r, _n = (dist.get_rank(), dist.get_world_size())
    losses = {100 * r + k: torch.ones(()) for k in range(3)}
    for _k, items in losses.items():
        dist.all_reduce(items)


def dict_of_own_names(other):
    r, _n = (dist.get_rank(), dist.get_world_size())
    losses = {f"sample {r} {k}": torch.ones(()) for k in range(3)}
    for k in losses:
        reduce(losses[k])


def closure_stats(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    stats = torch.zeros(3)
    batches = [(torch.ones(3), i) for i in range(4 * n)]

    def step(batch):
        dist.all_reduce(stats)

    for batch in batches[r::n]:
        step(batch)


def lists_of_own_losses(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    losses = [torch.ones(()) for _ in range(3 * n)]
    mine = losses[r::n]
    for items in mine:
        dist.all_reduce(items)


def gather_own(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    preds = [torch.ones(3) for _ in range(3 * n)]
    for i in range(r, 3 * n, n):
        dist.all_gather([torch.zeros(3) for _ in range(n)], preds[i])


def gather_own_shuffled(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    preds = [torch.ones(3) for _ in range(3 * n)]
    order = list(range(3 * n))
    random.Random(0).shuffle(order)
    for i in order[r::n]:
        dist.all_gather([torch.zeros(3) for _ in range(n)], preds[i])


def gather_expressions_shuffled(other):
    r, n = (dist.get_rank(), dist.get_world_size())
    preds = [torch.ones(3) for _ in range(3 * n)]
    order = list(range(3 * n))
    random.Random(0).shuffle(order)
    for i in order[r::n]:
        dist.all_gather_into_tensor(torch.zeros(3 * n), preds[i] * 1)


def metrics_in_turn(other):
    r, _n = (dist.get_rank(), dist.get_world_size())

    class M:
        def __init__(s):
            s.t = torch.zeros(3)

        def update(s, x):
            s.t += x

        def compute(s):
            dist.all_reduce(s.t)

    ms = [M() for _ in range(3)]
    for _i, m in enumerate(ms):
        m.update(r)
        m.compute()


LEGAL = {
    case.__name__: case
    for case in (
        receive_buffer,
        receive_buffer_wrapped,
        zeros_for_missing,
        zeros_for_a_missing_item,
        new_zeros,
        another_variable_by_rank,
        loss_branches,
        wrapper_branches_same_name,
        two_functions_by_rank,
        pipeline_parts,
        rotated_list,
        coalesced_own_zero,
        coalesced_pairs_in_branches,
        double_buffer,
        own_batches,
        own_indices,
        own_files,
        own_items_expression,
        own_batches_expression,
        own_batches_weighted,
        own_batches_of_pairs,
        method_step,
        metrics_own,
        dict_of_own_ids,
        dict_of_own_names,
        closure_stats,
        lists_of_own_losses,
        gather_own,
        gather_own_shuffled,
        gather_expressions_shuffled,
        metrics_in_turn,
    )
}
