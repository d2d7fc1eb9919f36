"""One kernel for all parameters: bit-identical to the rule on arrays, and numbers are never compiled in as constants."""

from __future__ import annotations

import math
import random
import weakref

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.extend import Optimizer
from tenon.optim import fused

pytest.importorskip("llvmlite")

SETTINGS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"maximize": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr_decay": 0.1}),
]
IDS = [f"{name}-{'-'.join(options)}" for name, options in SETTINGS]


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(fused, "COMPILE_AFTER", 1)
    monkeypatch.setattr(fused, "SMALL", 0)
    monkeypatch.setattr(fused, "SMALL_EACH", 0)


def never(monkeypatch):
    monkeypatch.setattr(fused, "COMPILE_AFTER", 1 << 62)


def bits(optimizer, ps):
    found = []
    for p in ps:
        found.append(bytes_of(p.raw))
        found += [(k, bytes_of(v.raw)) for k, v in sorted(optimizer.state.get(p, {}).items())]
    return found


def bytes_of(array):
    """The bits of an array's numbers; a NaN's sign says only which operand an instruction took it from."""
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array).tobytes()


def train(make, shapes, dtype="float32", steps=6, change=None, special=False):
    rng = np.random.default_rng(0)
    ps = [nn.Parameter(tenon.tensor(rng.standard_normal(s)).to(getattr(tenon, dtype))) for s in shapes]
    optimizer = make(ps)
    for step in range(steps):
        for p in ps:
            grad = rng.standard_normal(tuple(p.shape))
            if special and grad.size > 5:
                grad.reshape(-1)[:5] = [np.nan, np.inf, -np.inf, 0.0, 1e-42]
            p.grad = tenon.tensor(grad).to(p.dtype)
        if change is not None:
            change(step, optimizer, ps)
        optimizer.step()
    return optimizer, ps, bits(optimizer, ps)


def sets_of(optimizer):
    return [[len(s.members) for s in plan.sets if s.tables] for plan in optimizer._fused.values()]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), SETTINGS, ids=IDS)
def test_one_kernel_gives_the_bits_of_the_rule_on_arrays(monkeypatch, at_once, name, options, dtype):
    shapes = [(37, 29), (16384 * 3 + 17,), (5,), (), (1,), (2, 3, 4)]
    optimizer, _, made = train(
        lambda ps: getattr(tenon.optim, name)(ps, **options), shapes, dtype, special=True
    )
    assert sets_of(optimizer) == [[6]]

    never(monkeypatch)
    _, _, expected = train(lambda ps: getattr(tenon.optim, name)(ps, **options), shapes, dtype, special=True)
    assert made == expected


def test_schedules_and_changed_options_reach_the_kernel(monkeypatch, at_once):
    def change(step, optimizer, ps):
        group = optimizer.param_groups[0]
        group["lr"] = 0.1 / (step + 1)
        group["weight_decay"] = 0.0 if step in (2, 3) else 0.01
        group["betas"] = (0.9 - 0.01 * step, 0.99)

    results = []
    for prepare in (lambda: None, lambda: never(monkeypatch)):
        prepare()
        results.append(train(lambda ps: tenon.optim.AdamW(ps), [(100,), (7, 3)], steps=8, change=change)[2])

    assert results[0] == results[1]


def test_a_new_step_count_does_not_compile_anew(at_once):
    from tenon_cpu.jit.compiler import llvm

    train(lambda ps: tenon.optim.Adam(ps, lr=0.01), [(50,)], steps=2)
    before = llvm.counts.compiled + llvm.counts.loaded
    train(lambda ps: tenon.optim.Adam(ps, lr=0.02), [(60,)], steps=20)

    assert llvm.counts.compiled + llvm.counts.loaded == before


class _Rule(Optimizer):
    defaults = {"lr": 0.1}
    elementwise = True
    counts_steps = False


class Noisy(_Rule):
    """A rule that draws a random number in every step."""

    def update(self, f, p, g, s, h):
        return p - h.lr * random.random() * g, {}


class Counting(_Rule):
    """A rule that reads state of its own."""

    calls = 0

    def update(self, f, p, g, s, h):
        return p - h.lr * self.calls * g, {}


class Direct(_Rule):
    """A rule that calls NumPy itself."""

    def update(self, f, p, g, s, h):
        return p - h.lr * np.tanh(np.asarray(g)), {}


class InPlace(_Rule):
    """A rule that changes its arguments in place."""

    def update(self, f, p, g, s, h):
        g *= 2.0
        return p - h.lr * g, {}


class Shaped(_Rule):
    """A rule that reads a shape."""

    def update(self, f, p, g, s, h):
        return p - h.lr * g * len(g.shape), {}


class Branching(_Rule):
    """A rule that branches on an array."""

    def update(self, f, p, g, s, h):
        return (p - g if (g > 1e9).any() else p - h.lr * g), {}


class Double(_Rule):
    """Multiplies with one of NumPy's scalars, which are not weak."""

    def update(self, f, p, g, s, h):
        return p - np.float64(h.lr) * g, {}


class Transcendental(_Rule):
    """Uses a function that has more than one rounding."""

    def update(self, f, p, g, s, h):
        return p - h.lr * f.tanh(g), {}


class Swapping(_Rule):
    """A rule that exchanges two state entries."""

    def init(self, f, p):
        return {"a": f.zeros_like(p), "b": f.zeros_like(p)}

    def update(self, f, p, g, s, h):
        return s["a"] + g, {"a": s["b"], "b": p}


class Sqrt(_Rule):
    """A rule with the square root of a number, and a selection."""

    def update(self, f, p, g, s, h):
        return p - math.sqrt(h.lr) * f.where(abs(g) > 0.5, f.sign(g), f.clamp(g, -0.1, None) ** 2), {}


@pytest.mark.parametrize(
    ("rule", "fuses"),
    [
        (Noisy, True), (Counting, True), (Swapping, True), (Sqrt, True), (Direct, False), (InPlace, False),
        (Shaped, False), (Branching, False), (Double, False), (Transcendental, False),
    ],
)  # fmt: skip
def test_a_rule_of_a_third_party_gives_what_it_gives_on_arrays(monkeypatch, at_once, rule, fuses):
    def change(step, optimizer, ps):
        random.seed(step)
        optimizer.calls = step

    shapes = [(100,)] if rule is Noisy else [(100,), (20, 5)]
    optimizer, _, made = train(rule, shapes, change=change)
    assert any(sets_of(optimizer)[0]) == fuses

    never(monkeypatch)
    assert made == train(rule, shapes, change=change)[2]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64"])
def test_other_dtypes_are_updated_unfused_next_to_fused_ones(monkeypatch, at_once, dtype):
    def make(ps):
        odd = nn.Parameter(tenon.ones(9).to(getattr(tenon, dtype)))
        ps.append(odd)
        return tenon.optim.Adam(ps)

    optimizer, _, made = train(make, [(40,), (6,)])
    assert sets_of(optimizer) == [[2]]

    never(monkeypatch)
    assert made == train(make, [(40,), (6,)])[2]


def test_exchanged_arrays_and_loaded_states_are_seen(monkeypatch, at_once):
    def change(step, optimizer, ps):
        if step == 2:
            ps[0].data = tenon.ones(40)
        if step == 3:
            optimizer.load_state_dict(optimizer.state_dict())
        if step == 4:
            ps[1].grad = None
            optimizer.state[ps[0]]["step"].fill_(1.0)

    make = lambda ps: tenon.optim.Adam(ps)  # noqa: E731
    made = train(make, [(40,), (6,), (3,)], steps=8, change=change)[2]

    never(monkeypatch)
    assert made == train(make, [(40,), (6,), (3,)], steps=8, change=change)[2]


def test_non_contiguous_parameters_and_gradients_are_updated_alone(monkeypatch, at_once):
    def run():
        base = tenon.arange(12.0).reshape(3, 4)
        p, q = nn.Parameter(base.t()), nn.Parameter(tenon.ones(5))
        optimizer = tenon.optim.SGD([p, q], lr=0.1)
        for _ in range(3):
            p.grad = tenon.arange(12.0).reshape(4, 3)
            q.grad = tenon.ones(10)[::2]
            optimizer.step()
        return bits(optimizer, [p, q])

    made = run()
    never(monkeypatch)
    assert made == run()


def test_autograd_sees_that_parameters_changed(at_once):
    p = nn.Parameter(tenon.ones(300))
    optimizer = tenon.optim.SGD([p], lr=0.1)
    loss = (p * p).sum()
    p.grad = tenon.ones(300)
    optimizer.step()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_small_young_groups_are_not_compiled():
    p = nn.Parameter(tenon.ones(10))
    optimizer = tenon.optim.SGD([p], lr=0.1)
    p.grad = tenon.ones(10)
    optimizer.step()

    assert sets_of(optimizer) == [[]]


class Plain(_Rule):
    """A rule that uses only its arguments."""

    def update(self, f, p, g, s, h):
        return p - h.lr * g, {}


def recordings(monkeypatch):
    made = []
    record = fused._Set.record
    monkeypatch.setattr(fused._Set, "record", lambda self, *given: made.append(1) or record(self, *given))
    return made


@pytest.mark.parametrize(("rule", "times"), [(Plain, 2), (Noisy, 6), (Counting, 6), (Sqrt, 6)])
def test_only_a_rule_that_reads_only_its_arguments_is_not_run_again_for_the_same_ones(
    monkeypatch, at_once, rule, times
):
    made = recordings(monkeypatch)

    def change(step, optimizer, ps):
        if step == 3:
            optimizer.param_groups[0]["lr"] = 0.3

    train(rule, [(100,)], change=change)

    assert len(made) == times


@pytest.mark.parametrize(("rule", "fuses"), [(Plain, True), (Counting, False)])
def test_small_groups_are_compiled_only_for_rules_that_are_not_run_again(monkeypatch, rule, fuses):
    monkeypatch.setattr(fused, "COMPILE_AFTER", 1)

    optimizer, _, made = train(rule, [(10,), (3,)])
    assert any(sets_of(optimizer)[0]) == fuses

    never(monkeypatch)
    assert made == train(rule, [(10,), (3,)])[2]


def test_a_fused_step_keeps_no_gradient(at_once):
    p = nn.Parameter(tenon.ones(100))
    optimizer = tenon.optim.AdamW([p])
    kept = []
    for _ in range(4):
        memory = memoryview(bytearray(400))
        lent = np.frombuffer(memory, np.float32)
        p.grad = tenon.from_numpy(lent)
        kept.append(weakref.ref(lent))
        del lent, memory
        optimizer.step()
        optimizer.zero_grad()

    assert any(sets_of(optimizer)[0])
    assert [reference() for reference in kept] == [None] * 4
