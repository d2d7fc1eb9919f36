"""Let one rank make the collectives of a program in another order, and others take legal branches.

Run by ranks, the arguments are a folder, into which rank r writes ``r.json`` (the message of each case, or null),
and the rank that deviates. ``CASES`` and ``LEGAL`` are functions of whether this rank deviates.
"""

import contextlib
import json
import sys
from pathlib import Path

import tenon as torch
import tenon.distributed as dist
import tenon.distributed.nn.functional as F
from tenon.errors import CollectiveMismatchError


def pair():
    return torch.full((3,), 1.0), torch.full((3,), 2.0)


def outputs():
    return [torch.zeros(3) for _ in range(dist.get_world_size())]


def gather(tensor):
    dist.all_gather(outputs(), tensor)


def gather_flat(tensor):
    dist.all_gather_into_tensor(torch.zeros(3 * dist.get_world_size()), tensor)


def broadcast(tensor):
    dist.broadcast(tensor, 0)


def scatter_sum(tensor):
    dist.reduce_scatter_tensor(torch.zeros(3), torch.cat([tensor] * dist.get_world_size()))


def exchange(tensor):
    size = dist.get_world_size()
    dist.all_to_all_single(torch.zeros(3 * size), torch.cat([tensor] * size))


def exchange_lists(tensor):
    dist.all_to_all(outputs(), [tensor] * dist.get_world_size())


def gather_objects(tensor):
    dist.all_gather_object([None] * dist.get_world_size(), tensor.tolist())


def coalesce(tensor):
    dist.all_reduce_coalesced([tensor])


def collect(tensor):
    dist.gather(tensor, outputs() if dist.get_rank() == 0 else None, dst=0)


def deal(tensor):
    dist.scatter(tensor, outputs() if dist.get_rank() == 0 else None, src=0)


WRAPPED = (
    dist.all_reduce,
    gather,
    gather_flat,
    broadcast,
    scatter_sum,
    exchange,
    exchange_lists,
    gather_objects,
    coalesce,
    collect,
    deal,
    F.all_reduce,
    F.all_gather,
    lambda tensor: F.broadcast(tensor, 0),
    lambda tensor: F.reduce(tensor, 0),
)


def wrapped(function):
    """Two calls of ``function``, which one rank swaps."""

    def case(other):
        a, b = pair()
        if other:
            function(b)
            function(a)
        else:
            function(a)
            function(b)

    return case


def broadcast_in_branches(other):
    a, b = pair()
    if other:
        dist.broadcast(b, 0)
        dist.broadcast(a, 0)
    else:
        dist.broadcast(a, 0)
        dist.broadcast(b, 0)


def objects_in_branches(other):
    found = [None] * dist.get_world_size()
    if other:
        dist.all_gather_object(found, "b")
        dist.all_gather_object(found, "a")
    else:
        dist.all_gather_object(found, "a")
        dist.all_gather_object(found, "b")


def items_of_a_list(other):
    values = pair()
    for i in (1, 0) if other else (0, 1):
        dist.all_reduce(values[i])


def items_of_a_dict_in_a_wrapper(other):
    values = dict(zip("ab", pair(), strict=True))
    for key in "ba" if other else "ab":
        broadcast(values[key])


def objects_by_keys_in_two_functions(other):
    values = dict(zip("ab", pair(), strict=True))

    def one():
        for key in "ab":
            dist.all_gather_object([None] * 3, values[key].tolist())

    def another():
        for key in "ba":
            dist.all_gather_object([None] * 3, values[key].tolist())

    (another if other else one)()


def reversed_list_in_a_wrapper(other):
    values = list(pair())
    for each in reversed(values) if other else values:
        gather(each)


def lists_in_another_order(other):
    a, b = pair()
    dist.all_reduce_coalesced([b, a] if other else [a, b])


class Meter:
    def __init__(self):
        self.total = torch.zeros(3)

    def synchronize(self):
        dist.all_reduce(self.total)


def objects_that_hold_tensors(other):
    a, b = Meter(), Meter()
    for each in (b, a) if other else (a, b):
        each.synchronize()


def methods_in_branches(other):
    a, b = Meter(), Meter()
    if other:
        b.synchronize()
        a.synchronize()
    else:
        a.synchronize()
        b.synchronize()


def a_call_skipped(other):
    a, b = pair()
    if not other:
        broadcast(a)
    broadcast(b)
    if other:
        broadcast(a)


def a_call_too_many(other):
    a, b = pair()
    dist.broadcast(a, 0)
    if other:
        dist.broadcast(a, 0)
    dist.broadcast(b, 0)
    dist.broadcast(b, 0)


def names_of_a_gather(other):
    with dist.named("A" if other else "B"):
        gather(pair()[0])


def names_of_a_barrier(other):
    with dist.named("A" if other else "B"):
        dist.barrier()


def names_of_objects(other):
    with dist.named("A" if other else "B"):
        dist.all_gather_object([None] * dist.get_world_size(), 1)


def another_root(other):
    dist.reduce(pair()[0], 1 if other else 0)


def another_source(other):
    F.scatter(outputs(), 1 if other else 0)


def swapped_backward(other):
    x, y = (tensor.requires_grad_() for tensor in pair())
    p, q = F.all_reduce(x).sum(), F.all_reduce(y).sum()
    for each in (q, p) if other else (p, q):
        each.backward()


def swapped_in_a_compiled_function(other):
    a, b = pair()
    for _ in range(4):
        in_order(a, b)
    for _ in range(4):
        in_another_order(a, b)
    (in_another_order if other else in_order)(a, b)


def compiled_functions_swapped(other):
    a, b = pair()
    for _ in range(4):
        doubled(a)
    if other:
        doubled(b)
        doubled(a)
    else:
        doubled(a)
        doubled(b)


@torch.compile
def in_order(x, y):
    return F.all_reduce(x), F.all_reduce(y)


@torch.compile
def in_another_order(x, y):
    return F.all_reduce(y), F.all_reduce(x)


@torch.compile
def doubled(x):
    return F.all_reduce(x) * 2


COMPILED = (swapped_in_a_compiled_function, compiled_functions_swapped)
CASES = {
    **{f"swapped {n} {function.__name__}": wrapped(function) for n, function in enumerate(WRAPPED)},
    **{
        case.__name__: case
        for case in (
            broadcast_in_branches,
            objects_in_branches,
            items_of_a_list,
            items_of_a_dict_in_a_wrapper,
            objects_by_keys_in_two_functions,
            reversed_list_in_a_wrapper,
            lists_in_another_order,
            objects_that_hold_tensors,
            methods_in_branches,
            a_call_skipped,
            a_call_too_many,
            names_of_a_gather,
            names_of_a_barrier,
            names_of_objects,
            another_root,
            another_source,
            swapped_backward,
        )
    },
}


def branches_of_one_broadcast(other):
    if dist.get_rank() == 0:
        data = torch.ones(3)
        dist.broadcast(data, 0)
    else:
        buffer = torch.zeros(3)
        dist.broadcast(buffer, 0)


def an_early_return(other):
    if dist.get_rank() == 0:
        broadcast(torch.ones(3))
        return
    broadcast(torch.zeros(3))


@contextlib.contextmanager
def main_process_first():
    try:
        if dist.get_rank() != 0:
            dist.barrier()
        yield
    finally:
        if dist.get_rank() == 0:
            dist.barrier()


def barriers_of_the_main_process(other):
    with main_process_first():
        pass
    if dist.get_rank() != 0:
        dist.barrier()
    if dist.get_rank() == 0:
        dist.barrier()


def each_ranks_own_part(other):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.full((3,), float(i)) for i in range(2 * size)]
    dist.all_gather(outputs(), parts[rank])
    dist.all_reduce(parts[rank])
    for i in range(rank, 2 * size, size):
        dist.all_gather(outputs(), parts[i])


def send_data():
    data = torch.ones(2)
    dist.broadcast(data, 0)
    dist.barrier()


def receive_data():
    buffer = torch.zeros(2)
    dist.broadcast(buffer, 0)
    dist.barrier()


def two_roles(other):
    send_data() if dist.get_rank() == 0 else receive_data()


def a_missing_tensor(other):
    zero, count = torch.zeros(()), torch.ones(())
    loss = None if other else torch.ones(())
    dist.all_reduce(loss if loss is not None else torch.zeros(()))
    dist.all_reduce(loss if loss is not None else zero)
    dist.all_reduce(count if count is not None else zero)


def every_rank_in_turn(other):
    for stage in range(dist.get_world_size()):
        if stage == dist.get_rank():
            mine = torch.ones(2)
            dist.broadcast(mine, stage)
        else:
            theirs = torch.zeros(2)
            dist.broadcast(theirs, stage)


def objects_of_each_functions_own(other):
    def first(values):
        for key in "ab":
            dist.all_gather_object([None] * 3, values[key])

    def second(found):
        for key in "ba":
            dist.all_gather_object([None] * 3, found[key])

    (second if other else first)({"a": 1, "b": 2})


def loops_over_all(other):
    values = list(pair())
    named = dict(zip("ab", values, strict=True))
    for _ in range(2):
        for each in values:
            dist.all_reduce(each)
        for key in named:
            dist.all_reduce(named[key])
        for _, each in named.items():
            broadcast(each)
        [gather(each) for each in values]


LEGAL = {
    case.__name__: case
    for case in (
        branches_of_one_broadcast,
        an_early_return,
        barriers_of_the_main_process,
        each_ranks_own_part,
        two_roles,
        a_missing_tensor,
        every_rank_in_turn,
        objects_of_each_functions_own,
        loops_over_all,
    )
}


def told(other, compiled=False):
    """The error message of each case, or None; ``other`` is whether this rank deviates."""
    messages = {}
    cases = {**CASES, **LEGAL, **({case.__name__: case for case in COMPILED} if compiled else {})}
    for name, case in cases.items():
        try:
            messages[name] = case(other)
        except CollectiveMismatchError as error:
            messages[name] = str(error)
        dist.get_communicator().barrier(name=f"after {name}")
    return messages


if __name__ == "__main__":
    rank = dist.get_rank()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(told(rank == int(sys.argv[2]), compiled=True)))
