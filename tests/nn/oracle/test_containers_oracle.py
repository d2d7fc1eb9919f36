"""Containers: the same programs on tenon and on PyTorch."""

from collections import OrderedDict

import pytest

pytestmark = pytest.mark.oracle
PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


@program
def containers_print_the_same(t):
    def leaf():
        return t.nn.Module()

    net = t.nn.ModuleList([leaf(), leaf(), t.nn.Sequential(leaf()), leaf()])
    return (
        repr(net),
        repr(t.nn.ModuleList()),
        repr(t.nn.Sequential()),
        repr(t.nn.ModuleDict({"x": leaf(), "y": t.nn.Sequential(leaf(), leaf())})),
        repr(t.nn.ParameterList([t.ones(2, 3), t.nn.Parameter(t.ones(1)), "text", t.ones(())])),
        repr(t.nn.ParameterDict({"b": t.ones(2), "a": t.ones(1, 1), "n": 5})),
        repr(t.nn.Sequential(OrderedDict(one=leaf(), two=leaf()))[1:]),
    )


@program
def sequential_as_a_list(t):
    _, Double, _ = t.small()
    a, b, c, d = (Double() for _ in range(4))
    net = t.nn.Sequential(a, b)
    net.append(c).insert(1, d)
    order = [list(net).index(m) for m in (a, b, c, d)]
    popped = net.pop(0) is a
    net += t.nn.Sequential(a)
    doubled = net * 2
    del doubled[1:3]
    net[0] = b
    return (
        order,
        popped,
        list(net._modules),
        list(doubled._modules),
        len(2 * net),
        [list(net).index(m) for m in net],
        t.error(lambda: net[9]),
        t.error(lambda: net * 0).split(" for ")[0],
        t.error(lambda: net * "a").split(":")[0],
        t.error(lambda: net + 5).split(" class")[0],
        t.error(lambda: net.insert(99, a)),
        net(t.ones(1)).tolist(),
        len(t.nn.Sequential(a, b).extend([c, d])),
        sorted(n for n in dir(net) if n.isdigit()),
    )


@program
def module_list_as_a_list(t):
    _, Double, _ = t.small()
    items = [Double() for _ in range(4)]
    net = t.nn.ModuleList(items[:2])
    net.extend(items[2:])
    net.insert(0, items[3])
    first = [items.index(m) for m in net]
    del net[0]
    net[1] = items[0]
    return (
        first,
        [items.index(m) for m in net],
        list(net._modules),
        [items.index(m) for m in net[1:]],
        items.index(net[-1]),
        items.index(net.pop(-1)),
        len(net + net),
        t.error(lambda: net[9]),
        t.error(lambda: net.extend(5)),
        t.error(lambda: net(1)),
    )


@program
def module_dict_as_a_dict(t):
    _, Double, _ = t.small()
    d = t.nn.ModuleDict([["x", Double()], ("a", Double())])
    d.update({"m": Double()})
    d["z"] = Double()
    keys = list(d.keys()), list(d), "x" in d, len(d), [k for k, _ in d.items()], len(list(d.values()))
    d.pop("x")
    del d["a"]
    left = list(d)
    d.clear()
    return (
        keys,
        left,
        len(d),
        t.error(lambda: d.update(5)),
        t.error(lambda: d.update([["a"]])),
        t.error(lambda: d["no"]),
    )


@program
def parameter_containers(t):
    plist = t.nn.ParameterList([t.ones(1), t.nn.Parameter(t.ones(2))])
    plist += [t.zeros(3), "x"]
    plist.append(t.ones(4))
    plist[0] = t.ones(7)
    pdict = t.nn.ParameterDict({"foo": t.ones(3), "bar": t.ones(4)})
    pdict["x"] = t.ones(1)
    other = pdict | t.nn.ParameterDict([("foo", t.zeros(1)), ("y", 5)])
    return (
        [type(p).__name__ for p in plist],
        list(plist.state_dict()),
        [type(p).__name__ for p in plist[1:3]],
        list(pdict.state_dict()),
        [type(p).__name__ for p in pdict.values()],
        list(other),
        pdict.get("nope"),
        pdict.popitem()[0],
        pdict.setdefault("w", t.ones(1)).shape == (1,),
        list(pdict.fromkeys(["a", "b"]).keys()),
        list(reversed(pdict)),
        t.error(lambda: plist(1)),
        t.error(lambda: plist.extend(5)),
        t.error(lambda: plist[99]),
        t.error(lambda: pdict[5])[:80],
    )


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_program_sees_the_same_on_both(run, same_on_both):
    same_on_both(run)
