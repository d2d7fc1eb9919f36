"""Large parameters in pieces, small ones together: bit-identical to one update of everything."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.optim import batch, update

SETTINGS = [
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    ("SGD", {"maximize": True}),
    ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"maximize": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr_decay": 0.1}),
]
IDS = [f"{name}-{'-'.join(options)}" for name, options in SETTINGS]
KINDS = ["float32", "float64", "bfloat16", "float16", "complex64"]


def trained(name, options, shapes, dtype, steps=5, skip=None):
    """Parameters and states after some steps with gradients that depend on only the arguments."""
    rng = np.random.default_rng(0)

    def draw(shape):
        values = rng.standard_normal(shape)
        if dtype.startswith("complex"):
            values = values + 1j * rng.standard_normal(shape)
        return tenon.tensor(values).to(getattr(tenon, dtype))

    ps = [nn.Parameter(draw(shape)) for shape in shapes]
    optimizer = getattr(tenon.optim, name)(ps, **options)
    for step in range(steps):
        for i, p in enumerate(ps):
            p.grad = draw(tuple(p.shape))
            if skip is not None and skip(step, i):
                p.grad = None
        optimizer.step()
    return optimizer, bits(optimizer, ps)


def bits(optimizer, ps):
    found = []
    for p in ps:
        found.append(p.raw.tobytes())
        found += [(k, v.raw.tobytes()) for k, v in sorted(optimizer.state.get(p, {}).items())]
    return found


@pytest.mark.parametrize(
    "dtype", [pytest.param(kind, marks=() if kind == "float32" else pytest.mark.slow) for kind in KINDS]
)
@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
def test_pieces_of_any_size_give_the_whole_update_bit_for_bit(monkeypatch, name, options, dtype):
    shapes = [(37, 29), (1000,)]
    monkeypatch.setattr(batch, "SMALL", -1)
    monkeypatch.setattr(update, "PIECE", 1 << 30)
    _, whole = trained(name, options, shapes, dtype)

    for piece in (1, 7, 64, 999, 1000, 1001) if dtype == "float32" else (64, 1001):
        monkeypatch.setattr(update, "PIECE", piece)
        assert trained(name, options, shapes, dtype, steps=5)[1] == whole


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
def test_small_parameters_together_give_what_each_gives_alone_bit_for_bit(monkeypatch, name, options, dtype):
    shapes = [(8, 4), (8,), (), (0, 3), (2, 8), (300,), (5000,)]
    together, results = trained(name, options, shapes, dtype)
    monkeypatch.setattr(batch, "SMALL", -1)
    alone, expected = trained(name, options, shapes, dtype)

    assert results == expected
    batched = [len(b.members) for plan in together._plans.values() for b in plan.batches]
    assert batched == ([6] if dtype in ("float32", "float64") else [])
    assert not any(plan.batches for plan in alone._plans.values())


def test_gradients_that_come_and_go_give_what_each_parameter_gives_alone(monkeypatch):
    shapes = [(3,), (4,), (5,), (6,)]

    def skip(step, i):
        return (step // 3 + i) % 4 == 0

    _, results = trained("AdamW", {}, shapes, "float32", 20, skip)
    monkeypatch.setattr(batch, "SMALL", -1)

    assert results == trained("AdamW", {}, shapes, "float32", 20, skip)[1]


def test_parameters_with_different_step_counts_are_not_updated_together():
    ps = [nn.Parameter(tenon.ones(3)) for _ in range(4)]
    optimizer = tenon.optim.Adam(ps)
    for p in ps[:2]:
        p.grad = tenon.ones(3)
    optimizer.step()
    for p in ps:
        p.grad = tenon.ones(3)
    for _ in range(4):
        optimizer.step()

    (plan,) = optimizer._plans.values()
    assert [[b.params[0] is ps[0], len(b.params)] for b in plan.batches] == [[True, 2], [False, 2]]
    assert [optimizer.state[p]["step"].item() for p in ps] == [5, 5, 4, 4]


def settled(make, steps=3):
    ps = [nn.Parameter(tenon.ones(3)), nn.Parameter(tenon.ones(2, 2))]
    optimizer = make(ps)
    for p in ps:
        p.grad = tenon.full_like(p, 0.5)
    for _ in range(steps):
        optimizer.step()
    return ps, optimizer


CHANGES = {
    "step count set": lambda o, p: o.state[p]["step"].fill_(50),
    "state written": lambda o, p: o.state[p]["exp_avg"].fill_(1.0),
    "state replaced": lambda o, p: o.state[p].update(exp_avg=tenon.ones_like(p)),
    "state deleted": lambda o, p: o.state.pop(p),
    "all state deleted": lambda o, p: o.state.clear(),
    "state loaded": lambda o, p: o.load_state_dict(o.state_dict()),
    "state added": lambda o, p: o.state[p].update(note="mine"),
    "data exchanged": lambda o, p: setattr(p, "data", p.data.clone() * 2),
    "data cast": lambda o, p: (setattr(p, "grad", None), setattr(p, "data", p.data.double())),
    "gradient gone": lambda o, p: setattr(p, "grad", None),
    "amsgrad turned on": lambda o, p: o.param_groups[0].update(amsgrad=True),
    "group grown": lambda o, p: o.param_groups[0]["params"].append(parameter()),
    "group shrunk": lambda o, p: o.param_groups[0]["params"].pop(),
    "group reversed": lambda o, p: o.param_groups[0]["params"].reverse(),
    "group added": lambda o, p: o.add_param_group({"params": [parameter()]}),
    "rate changed": lambda o, p: o.param_groups[0].update(lr=0.5),
}


def parameter():
    p = nn.Parameter(tenon.ones(2))
    p.grad = tenon.ones(2)
    return p


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_between_steps_is_respected_as_if_nothing_were_batched(monkeypatch, change):
    results = []
    for small in (batch.SMALL, -1):
        monkeypatch.setattr(batch, "SMALL", small)
        ps, optimizer = settled(tenon.optim.Adam)
        CHANGES[change](optimizer, ps[0])
        for _ in range(4):
            optimizer.step()
        everyone = [p for group in optimizer.param_groups for p in group["params"]]
        results.append(bits_of_all(optimizer, [*ps, *everyone]))

    assert results[0] == results[1]


def bits_of_all(optimizer, ps):
    """``bits``, where state may also hold what is not a tensor."""
    found = []
    for p in ps:
        entry = sorted(optimizer.state.get(p, {}).items())
        found.append((p.raw.tobytes(), [(k, getattr(v, "raw", v)) for k, v in entry]))
    return [
        (raw, [(k, v.tobytes() if hasattr(v, "tobytes") else v) for k, v in entry]) for raw, entry in found
    ]


def test_state_tensors_stay_the_same_objects_while_they_are_batched():
    ps, optimizer = settled(tenon.optim.Adam, steps=1)
    held = {p: dict(optimizer.state[p]) for p in ps}

    for _ in range(3):
        optimizer.step()

    for p in ps:
        assert all(optimizer.state[p][k] is v for k, v in held[p].items())
        assert held[p]["step"].item() == 4


def test_batched_state_is_deep_copied_apart():
    import copy

    ps, optimizer = settled(tenon.optim.Adam, steps=5)
    saved = copy.deepcopy(optimizer.state_dict())
    before = saved["state"][0]["exp_avg"].tolist()

    optimizer.step()

    assert saved["state"][0]["exp_avg"].tolist() == before != optimizer.state[ps[0]]["exp_avg"].tolist()


def test_a_rule_that_looks_at_the_whole_is_never_cut_nor_joined():
    sizes = []

    class Normed(tenon.optim.Optimizer):
        defaults = {"lr": 1.0}

        def update(self, f, p, g, s, h):
            sizes.append(tuple(p.shape))
            square = f.sum(f.mul(g, g), axes=tuple(range(len(p.shape))), keepdims=False)
            return p - h.lr * g / f.sqrt(square), {}

    ps = [nn.Parameter(tenon.zeros(70_000)), nn.Parameter(tenon.zeros(2, 2)), nn.Parameter(tenon.zeros(3))]
    optimizer = Normed(ps)
    for p in ps:
        p.grad = tenon.ones_like(p)
    for _ in range(3):
        optimizer.step()

    assert set(sizes) == {(70_000,), (2, 2), (3,)} and len(sizes) == 9
    np.testing.assert_allclose(ps[0].detach().numpy(), -3 / 70_000**0.5, rtol=1e-5)
