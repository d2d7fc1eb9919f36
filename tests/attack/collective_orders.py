"""Programs in which one rank has the same tensors in another order.

``CASES`` are functions of whether this rank deviates. The tensors reach the collective through containers,
closures, expressions and wrappers. Run by ranks, the arguments are a folder, into which rank r writes
``r.json``, and the rank that deviates.
"""

import functools
import json
import sys
from pathlib import Path

from own_tensors import LEGAL, pair, reduce, spread

import tenon as torch
import tenon.distributed as dist
import tenon.distributed.nn.functional as F
from tenon import nn
from tenon.errors import CollectiveMismatchError


def coalesced_in_branches(other):
    a, b = pair()
    if other:
        dist.all_reduce_coalesced([b, a])
    else:
        dist.all_reduce_coalesced([a, b])


def coalesced_reversed_list(other):
    a, b = pair()
    items = [a, b]
    if other:
        items.reverse()
    dist.all_reduce_coalesced(items)


def coalesced_wrapped(other):
    a, b = pair()

    def sync(ts):
        dist.all_reduce_coalesced(ts)

    sync([b, a] if other else [a, b])


def coalesced_gather_in_branches(other):
    a, b = pair()
    n = dist.get_world_size()
    outs = [[torch.zeros(3), torch.zeros(3)] for _ in range(n)]
    if other:
        dist.all_gather_coalesced(outs, [b, a])
    else:
        dist.all_gather_coalesced(outs, [a, b])


def wrapper_in_two_branches(other):
    a, b = pair()
    if other:
        reduce(b)
    else:
        reduce(a)
    if other:
        reduce(a)
    else:
        reduce(b)


def wrapped_broadcast_in_two_branches(other):
    a, b = pair()
    if other:
        spread(b)
    else:
        spread(a)
    if other:
        spread(a)
    else:
        spread(b)


def closures_in_a_list(other):
    a, b = pair()

    def make(t):

        def go():
            dist.all_reduce(t)

        return go

    fs = [make(a), make(b)]
    for f in reversed(fs) if other else fs:
        f()


def callable_objects(other):

    class M:
        def __init__(s, v):
            s.t = torch.full((3,), v)

        def __call__(s):
            dist.all_reduce(s.t)

    ms = [M(1.0), M(2.0)]
    for m in reversed(ms) if other else ms:
        m()


def partials(other):
    a, b = pair()
    ps = [functools.partial(dist.all_reduce, a), functools.partial(dist.all_reduce, b)]
    for p in reversed(ps) if other else ps:
        p()


def partial_wrapper(other):
    a, b = pair()
    ps = [functools.partial(reduce, a), functools.partial(reduce, b)]
    for p in reversed(ps) if other else ps:
        p()


def comprehension(other):
    a, b = pair()
    [dist.all_reduce(t) for t in ([b, a] if other else [a, b])]


def generator_expression(other):
    a, b = pair()
    list(dist.all_reduce(t) for t in ([b, a] if other else [a, b]))


def mapped(other):
    a, b = pair()
    list(map(dist.all_reduce, [b, a] if other else [a, b]))


def mapped_wrapper(other):
    a, b = pair()
    list(map(reduce, [b, a] if other else [a, b]))


def mapped_reversed_list(other):
    items = [torch.ones(3), torch.ones(3)]
    l2 = items[::-1] if other else items
    list(map(reduce, l2))


def functional_of_an_expression(other):
    a, b = pair()

    def red(t):
        return F.all_reduce(t * 1)

    [red(t) for t in ([b, a] if other else [a, b])]


def expressions_in_a_loop(other):
    a, b = pair()
    for t in [b, a] if other else [a, b]:
        dist.all_reduce(t * 2)


def bound_methods(other):

    class M:
        def __init__(s, v):
            s.t = torch.full((3,), v)

        def go(s):
            dist.all_reduce(s.t)

    p, q = (M(1.0), M(2.0))
    f = [p.go, q.go]
    for g in reversed(f) if other else f:
        g()


def nested_containers(other):
    s = {"p": [torch.ones(3), torch.ones(3)], "q": [torch.ones(3)]}
    for k in sorted(s, reverse=other):
        for t in s[k]:
            dist.all_reduce(t)


def states_of_an_optimizer(other):
    m = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    m(torch.ones(2, 3)).sum().backward()
    o.step()
    ps = list(m.parameters())
    for p in reversed(ps) if other else ps:
        dist.all_reduce(o.state[p]["momentum_buffer"])


def properties(other):

    class M:
        def __init__(s, v):
            s._t = torch.full((3,), v)

        @property
        def mean(s):
            dist.all_reduce(s._t)
            return s._t

    p, q = (M(1.0), M(2.0))
    if other:
        assert q.mean is not None
        assert p.mean is not None
    else:
        assert p.mean is not None
        assert q.mean is not None


def recursion(other):
    tree = {"items": torch.ones(3), "r": {"items": torch.ones(3), "r": torch.ones(3)}}

    def go(t):
        if isinstance(t, dict):
            for k in sorted(t, reverse=other):
                go(t[k])
        else:
            dist.all_reduce(t)

    go(tree)


def dict_filled_in_another_order(other):
    d = {}
    for k in "ba" if other else "ab":
        d[k] = torch.ones(3)
    for _k, v in d.items():
        dist.all_reduce(v)


def generator_order(other):
    a, b = pair()

    def gen():
        if other:
            yield b
            yield a
        else:
            yield a
            yield b

    for t in gen():
        dist.all_reduce(t)


def slices_of_a_tensor(other):
    w = torch.zeros(6)
    for i in (3, 0) if other else (0, 3):
        dist.all_reduce(w[i : i + 3])


def attributes_by_name(other):

    class M:
        pass

    v = M()
    v.x = torch.ones(3)
    v.y = torch.ones(3)
    for n in "yx" if other else "xy":
        reduce(getattr(v, n))


def decorated_functions(other):

    def synced(f):

        @functools.wraps(f)
        def w():
            t = f()
            dist.all_reduce(t)
            return t

        return w

    @synced
    def one():
        return torch.ones(3)

    @synced
    def two():
        return torch.full((3,), 2.0)

    if other:
        two()
        one()
    else:
        one()
        two()


CASES = {
    case.__name__: case
    for case in (
        coalesced_in_branches,
        coalesced_reversed_list,
        coalesced_wrapped,
        coalesced_gather_in_branches,
        wrapper_in_two_branches,
        wrapped_broadcast_in_two_branches,
        closures_in_a_list,
        callable_objects,
        partials,
        partial_wrapper,
        comprehension,
        generator_expression,
        mapped,
        mapped_wrapper,
        mapped_reversed_list,
        functional_of_an_expression,
        expressions_in_a_loop,
        bound_methods,
        nested_containers,
        states_of_an_optimizer,
        properties,
        recursion,
        dict_filled_in_another_order,
        generator_order,
        slices_of_a_tensor,
        attributes_by_name,
        decorated_functions,
    )
}


def told(other):
    """The message of each program, or None."""
    messages = {}
    for name, program in {**CASES, **LEGAL}.items():
        try:
            program(other)
            messages[name] = None
        except CollectiveMismatchError as error:
            messages[name] = str(error)
        dist.get_communicator().barrier(name=f"after {name}")
    return messages


if __name__ == "__main__":
    rank = dist.get_rank()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(told(rank == int(sys.argv[2]))))
