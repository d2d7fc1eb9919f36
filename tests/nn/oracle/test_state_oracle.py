"""Saving, loading, copying, converting and calling with other state: the same programs on both."""

import copy
import pickle
import re
from collections import OrderedDict

import pytest

pytestmark = pytest.mark.oracle
PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


@program
def state_dict_keys_and_metadata(t):
    _, _, Net = t.small()
    state = Net().state_dict()
    return type(state).__name__, list(state), dict(state._metadata), Net().state_dict(prefix="x.").keys()


@program
def load_errors(t):
    Affine, _, Net = t.small()
    net = Net()
    good = net.state_dict()
    missing = OrderedDict(good)
    del missing["first.weight"], missing["rest.0.calls"]
    extra = OrderedDict(good, **{"what": t.ones(1), "first.what": t.ones(1), "no.where": t.ones(1)})
    wrong = OrderedDict(good, **{"first.weight": t.ones(5, 5), "named.a.calls": t.ones(2)})
    no_tensor = OrderedDict(good, **{"first.weight": "text"})

    def lines(state, **how):
        return t.error(lambda: net.load_state_dict(state, **how)).split("\nNothing was loaded")[0]

    return [
        lines(missing),
        lines(extra),
        lines(wrong),
        lines(OrderedDict(wrong, what=t.ones(1))),
        re.sub("<class .*>", "", lines(no_tensor)),
        lines(wrong, strict=False),
        repr(net.load_state_dict(missing, strict=False)),
        repr(net.load_state_dict(good)),
        str(net.load_state_dict(extra, strict=False)),
        lines(5),
        Affine().load_state_dict({"weight": t.ones(3, 2), "calls": t.ones(())[None]}).missing_keys,
    ]


@program
def state_dict_hooks(t):
    Affine, _, _ = t.small()
    module = t.nn.Sequential(Affine())
    seen = []
    module[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("pre", prefix, keep)))
    module[0].register_state_dict_post_hook(lambda m, s, prefix, meta: s.__delitem__(prefix + "calls"))
    module._register_state_dict_hook(lambda m, s, prefix, meta: OrderedDict(s, added=1))
    state = module.state_dict()
    other = t.nn.Sequential(Affine())
    other[0].register_load_state_dict_pre_hook(
        lambda m, s, prefix, meta, strict, missing, unexpected, errors: s.setdefault(
            prefix + "calls", t.ones(1)
        )
    )
    other._register_load_state_dict_pre_hook(
        lambda s, prefix, *rest: seen.append(("load pre", prefix, list(s)))
    )
    other.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    result = other.load_state_dict(state)
    bad = Affine()
    bad.register_state_dict_post_hook(lambda m, s, p, meta: s)
    bad_load = Affine()
    bad_load.register_load_state_dict_post_hook(lambda m, keys: 5)
    return (
        list(state),
        seen,
        repr(result),
        other[0].calls.tolist(),
        t.error(lambda: bad.state_dict()),
        t.error(lambda: bad_load.load_state_dict(Affine().state_dict()))[:60],
    )


@program
def extra_state(t):
    class Keeps(t.nn.Module):
        def __init__(self, word):
            super().__init__()
            self.word = word

        def get_extra_state(self):
            return {"word": self.word}

        def set_extra_state(self, state):
            self.word = state["word"]

    source, target = t.nn.Sequential(Keeps("a")), t.nn.Sequential(Keeps("b"))
    state = source.state_dict()
    result = repr(target.load_state_dict(state))
    return (
        list(state),
        state["0._extra_state"],
        result,
        target[0].word,
        t.error(lambda: target.load_state_dict({})).split("\nNothing")[0],
        t.error(lambda: t.nn.Sequential(t.nn.Module()).load_state_dict(state)).split("\nNothing")[0],
    )


@program
def assign_instead_of_copy(t):
    Affine, _, _ = t.small()
    module, given = Affine(), Affine().double().state_dict()
    module.weight.requires_grad_(False)
    copied = Affine()
    copied.load_state_dict(given)
    module.load_state_dict(given, assign=True)
    return (
        str(copied.weight.dtype),
        str(module.weight.dtype),
        module.weight.requires_grad,
        type(module.weight).__name__,
        module.calls is given["calls"],
        sorted(module._buffers),
    )


@program
def conversions(t):
    _, _, Net = t.small()
    net = Net()
    weight = net.first.weight
    net.first.register_buffer("count", t.zeros(1, dtype=t.int64))
    seen = []
    for change in (
        lambda: net.double(),
        lambda: net.half(),
        lambda: net.float(),
        lambda: net.bfloat16(),
        lambda: net.to(t.float64),
        lambda: net.to("cpu", t.float32),
        lambda: net.to(device="cpu"),
        lambda: net.to(t.ones(1, dtype=t.float64)),
        lambda: net.type(t.float32),
        lambda: net.to(dtype=t.float64, non_blocking=True),
    ):
        same = change() is net and net.first.weight is weight
        seen.append(
            (same, str(net.first.weight.dtype), str(net.first.calls.dtype), str(net.first.count.dtype))
        )
    return seen, t.error(lambda: net.to(t.int64))


@program
def meta_device_and_to_empty(t):
    module = t.nn.Module()
    module.weight = t.nn.Parameter(t.ones(2, 3, device="meta"))
    text = t.error(lambda: module.to("cpu"))
    before = str(module.weight.device)
    module.to_empty(device="cpu")
    return text, before, str(module.weight.device), tuple(module.weight.shape), module.weight.requires_grad


@program
def copies_and_pickles(t):
    net = t.nn.Sequential(
        t.nn.ModuleList([t.nn.ParameterList([t.ones(2)])]), t.nn.ParameterDict({"a": t.ones(1)})
    )
    net.tied = net[1].a
    out = []
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), copy.copy(net)):
        out.append(
            (
                repr(other),
                list(other.state_dict()),
                other[1].a is net[1].a,
                other.tied is other[1].a,
                other.training,
            )
        )
    return out


@program
def functional_call(t):
    class Tied(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.foo = t.nn.Parameter(t.ones(1))
            self.tied = self.foo
            self.register_buffer("seen", t.zeros(1))

        def forward(self, x, scale=1.0):
            self.seen = self.seen + 1
            return (x + self.foo + self.tied) * scale

    module = Tied()
    call = t.func.functional_call
    given = {"foo": t.zeros(1), "seen": t.full((1,), 5.0)}
    return (
        call(module, given, t.zeros(1)).tolist(),
        given["seen"].tolist(),
        module.seen.tolist(),
        call(module, {"foo": t.zeros(1)}, t.zeros(1), tie_weights=False).tolist(),
        call(module, ({"foo": t.zeros(1)}, {"seen": t.zeros(1)}), (t.ones(1),), {"scale": 3.0}).tolist(),
        t.error(lambda: call(module, {"foo": t.zeros(1), "tied": t.ones(1)}, t.zeros(1))),
        t.error(lambda: call(module, {"foo": t.zeros(1), "no": t.ones(1)}, t.zeros(1), strict=True)),
        t.error(lambda: call(module, ({"foo": t.zeros(1)}, {"foo": t.zeros(1)}), t.zeros(1))),
        module.foo.tolist(),
        isinstance(module.foo, t.nn.Parameter),
    )


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_program_sees_the_same_on_both(run, same_on_both):
    same_on_both(run)
