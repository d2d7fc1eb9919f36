"""The public contract of ``Optimizer``: groups, steps, closures, hooks, gradients, copies."""

from __future__ import annotations

import copy
import math
import pickle
from typing import ClassVar

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import ConfigError, GradError
from tenon.optim import SGD, Adam, AdamW
from tenon.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)

pytestmark = pytest.mark.together


def parameter(*values, grad=None, dtype=None):
    p = nn.Parameter(tenon.tensor(list(values), dtype=dtype))
    if grad is not None:
        p.grad = tenon.tensor(list(grad), dtype=dtype)
    return p


class Lion(Optimizer):
    """The rule of the plugin guide."""

    defaults: ClassVar = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99}

    def init(self, f, p):
        return {"m": f.zeros_like(p)}

    def update(self, f, p, g, s, h):
        step = f.sign(h.beta1 * s["m"] + (1 - h.beta1) * g)
        return p - h.lr * step, {"m": h.beta2 * s["m"] + (1 - h.beta2) * g}


class TorchStyle(Optimizer):
    """As users write them for torch."""

    def __init__(self, params, lr=required, decay=0.5):
        super().__init__(params, dict(lr=lr, decay=decay))

    @tenon.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with tenon.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["average"] = tenon.zeros_like(p)
                state["step"] += 1
                state["average"].mul_(group["decay"]).add_(p.grad)
                p.add_(state["average"], alpha=-group["lr"])
        return loss


# --- construction and groups ---


def test_parameters_come_as_iterator_pairs_dicts_or_dicts_of_pairs():
    model = nn.Linear(2, 1)
    forms = [
        model.parameters(),
        [model.weight, model.bias],
        model.named_parameters(),
        [{"params": model.parameters()}],
        [{"params": model.weight}, {"params": [model.bias], "lr": 0.5}],
        [{"params": model.named_parameters()}],
    ]

    made = [SGD(form, lr=0.1) for form in forms]

    for one in made:
        assert [id(p) for g in one.param_groups for p in g["params"]] == [id(model.weight), id(model.bias)]
    assert [g["lr"] for g in made[4].param_groups] == [0.1, 0.5]
    assert (
        made[2].param_groups[0]["param_names"] == made[5].param_groups[0]["param_names"] == ["weight", "bias"]
    )
    assert "param_names" not in made[0].param_groups[0]


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        (
            lambda: tenon.ones(2),
            TypeError,
            "should be an iterable of Tensors or dicts, but got torch.FloatTensor",
        ),
        (lambda: {"a": tenon.ones(2)}, TypeError, "but got dict"),
        (list, ValueError, "optimizer got an empty parameter list"),
        (lambda: [3], TypeError, "can only optimize Tensors, but one of the params is int"),
        (lambda: [{"params": {tenon.ones(1)}}], TypeError, "ordered collections"),
        (lambda: [{"params": [tenon.ones(1)]}, tenon.ones(1)], TypeError, "param_group must be a dict"),
        (lambda: [{"lr": 1}], KeyError, "params"),
        (lambda: [tenon.ones(2, requires_grad=True) * 2], ValueError, "can't optimize a non-leaf Tensor"),
        (lambda: [("a", tenon.ones(1)), tenon.ones(1)], ValueError, "Some param names are missing"),
        (lambda: [("a", tenon.ones(1)), ("a", tenon.ones(1))], ConfigError, "have the name 'a'"),
    ],
)
def test_wrong_parameters_are_refused_in_torchs_words(params, error, words):
    with pytest.raises(error, match=words):
        SGD(params(), lr=0.1)


def test_a_tensor_that_retains_its_gradient_may_be_optimized():
    p = tenon.ones(2, requires_grad=True) * 2
    p.retain_grad()
    p.sum().backward()

    SGD([p], lr=1.0).step()

    assert p.tolist() == [1.0, 1.0]


def test_add_param_group_completes_from_the_defaults_and_refuses_what_is_there():
    first, second = parameter(1.0), parameter(2.0)
    optimizer = Adam([first], lr=0.1)

    optimizer.add_param_group({"params": second, "eps": 0.5})

    assert [g["eps"] for g in optimizer.param_groups] == [1e-8, 0.5]
    assert optimizer.param_groups[1]["lr"] == 0.1
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [parameter(1.0), first]})
    with pytest.raises(ValueError, match="cannot add param group with names"):
        optimizer.add_param_group({"params": [("a", parameter(1.0))]})
    assert len(optimizer.param_groups) == 2


def test_one_list_of_groups_serves_two_optimizers():
    groups = [{"params": [parameter(1.0)]}]

    first, second = SGD(groups, lr=0.1), SGD(groups, lr=0.2)

    assert (first.param_groups[0]["lr"], second.param_groups[0]["lr"]) == (0.1, 0.2)
    assert list(groups[0]) == ["params"]


def test_duplicate_parameters_warn_and_are_updated_twice_as_in_torch():
    p = parameter(1.0, grad=[1.0])

    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = SGD([p, p], lr=0.25)
    for _ in range(2):
        optimizer.step()

    assert p.tolist() == [0.0]


def test_required_options_must_be_stated():
    with pytest.raises(ValueError, match="required optimization parameter lr"):
        TorchStyle([parameter(1.0)])
    with pytest.raises(ValueError, match="required optimization parameter lr"):
        TorchStyle([{"params": parameter(1.0)}])

    assert TorchStyle([{"params": parameter(1.0), "lr": 1}]).param_groups[0]["lr"] == 1
    assert repr(required) == "<required parameter>"


# --- rules and torch-style subclasses ---


def test_a_rule_subclass_takes_its_defaults_as_options():
    optimizer = Lion([parameter(1.0)], lr=0.1, beta2=0.5)

    assert optimizer.defaults == {"lr": 0.1, "beta1": 0.9, "beta2": 0.5}
    assert Lion.defaults == {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99}


def test_an_unknown_option_is_an_error_that_names_the_nearest():
    with pytest.raises(
        TypeError, match=r"Lion\(\) got an unexpected option 'beta_1'.*Did you mean 'beta1'\?"
    ):
        Lion([parameter(1.0)], beta_1=0.5)


def test_a_rule_follows_its_formula():
    p = parameter(1.0, -2.0, grad=[0.5, -3.0])
    optimizer = Lion([p], lr=0.1)

    optimizer.step()
    p.grad = tenon.tensor([-9.0, -1.0])
    optimizer.step()

    np.testing.assert_allclose(p.detach().numpy(), [1.0, -1.8], rtol=1e-6)
    np.testing.assert_allclose(
        optimizer.state[p]["m"].numpy(), [0.005 * 0.99 - 0.09, -0.03 * 0.99 - 0.01], rtol=1e-6
    )
    assert optimizer.state[p]["step"].item() == 2


def test_a_class_without_rule_and_step_says_what_is_missing():
    class Empty(Optimizer):
        pass

    optimizer = Empty([parameter(1.0, grad=[1.0])], {"lr": 1})

    with pytest.raises(NotImplementedError, match="Empty defines neither update"):
        optimizer.step()


def test_torch_style_subclasses_run_and_their_hooks_too():
    p = parameter(1.0, grad=[1.0])
    optimizer = TorchStyle([p], lr=0.5)
    calls = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append(("before", o is optimizer)))
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append(("after", o is optimizer)))

    optimizer.step()
    optimizer.step(lambda: 3)

    assert p.tolist() == [1.0 - 0.5 - 0.75]
    assert optimizer.state[p]["step"] == 2
    assert calls == [("before", True), ("after", True)] * 2


def test_hooks_run_once_where_a_step_calls_its_parents():
    class Twice(SGD):
        def step(self, closure=None):
            super().step(closure)
            return super().step()

    p = parameter(1.0, grad=[1.0])
    optimizer = Twice([p], lr=0.25)
    calls = []
    optimizer.register_step_post_hook(lambda *args: calls.append(1))

    optimizer.step()

    assert p.tolist() == [0.5]
    assert calls == [1]


def test_a_rule_may_swap_its_states_and_give_one_back_as_the_parameter():
    class Odd(Optimizer):
        defaults: ClassVar = {"lr": 1}

        def init(self, f, p):
            return {"a": f.zeros_like(p), "b": p + 1}

        def update(self, f, p, g, s, h):
            return s["a"], {"a": s["b"], "b": s["a"]}

    for elementwise in (False, True):
        Odd.elementwise = elementwise
        p, q = parameter(5.0, grad=[0.0]), parameter(7.0, grad=[0.0])
        optimizer = Odd([p, q])
        seen = []
        for _ in range(4):
            optimizer.step()
            seen.append((p.item(), q.item(), optimizer.state[p]["a"].item(), optimizer.state[p]["b"].item()))
        assert seen == [(0, 0, 6, 0), (6, 8, 0, 6), (0, 0, 6, 0), (6, 8, 0, 6)]


# --- steps ---


def test_closure_runs_with_gradients_enabled_and_its_loss_is_returned():
    p = parameter(3.0)
    optimizer = SGD([p], lr=0.1)

    def closure():
        assert tenon.is_grad_enabled()
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    with tenon.no_grad():
        loss = optimizer.step(closure)
        assert not tenon.is_grad_enabled()

    assert loss.item() == 9.0
    np.testing.assert_allclose(p.detach().numpy(), [2.4], rtol=1e-6)


def test_grad_mode_is_restored_when_a_step_fails():
    class Broken(Optimizer):
        def update(self, f, p, g, s, h):
            raise ZeroDivisionError

    p = parameter(1.0, grad=[1.0])
    optimizer = Broken([p], {})

    with pytest.raises(ZeroDivisionError):
        optimizer.step()

    assert tenon.is_grad_enabled()
    assert optimizer.state[p]["step"].item() == 0


def test_parameters_without_gradient_are_left_alone_and_get_no_state():
    with_grad, without = parameter(1.0, grad=[1.0]), parameter(1.0)
    optimizer = Adam([with_grad, without])

    optimizer.step()

    assert without.tolist() == [1.0]
    assert without not in optimizer.state and with_grad in optimizer.state


def test_update_is_in_place_and_seen_by_autograd():
    p = parameter(1.0, 2.0, grad=[1.0, 1.0])
    memory, version = p.data_ptr(), p._version
    saved = (p * p).sum()

    SGD([p], lr=0.1).step()

    assert p.data_ptr() == memory and p._version > version
    with pytest.raises(GradError):
        saved.backward()


def test_updates_in_a_batch_are_seen_by_autograd():
    ps = [parameter(1.0, grad=[1.0]) for _ in range(3)]
    optimizer = SGD(ps, lr=0.1)
    for _ in range(3):
        optimizer.step()
    saved = (ps[1] * ps[1]).sum()

    optimizer.step()

    with pytest.raises(GradError):
        saved.backward()


def test_nan_and_infinite_gradients_reach_the_parameter_without_a_warning():
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"):
        p = parameter(1.0, 1.0, 1.0, grad=[math.nan, math.inf, 1e30])
        optimizer = getattr(tenon.optim, name)([p])
        optimizer.step()
        optimizer.step()
        assert math.isnan(p[0].item()) and not math.isfinite(p[1].item())


def test_rate_may_be_a_tensor_that_is_changed_in_place():
    p, rate = parameter(1.0, grad=[1.0]), tenon.tensor(0.5)
    optimizer = SGD([p], lr=rate)

    optimizer.step()
    rate.fill_(0.25)
    optimizer.step()

    assert p.tolist() == [0.25]
    with pytest.raises(ValueError, match="1-element"):
        SGD([p], lr=tenon.ones(2))
    with pytest.raises(ValueError, match="Tensor betas"):
        Adam([p], betas=(tenon.ones(2), tenon.ones(2)))
    with pytest.raises(ValueError, match="both floats or both Tensors"):
        Adam([p], betas=(tenon.tensor(0.9), 0.99))


def test_tensor_options_give_what_numbers_give():
    p, q = parameter(1.0, 2.0, grad=[1.0, -1.0]), parameter(1.0, 2.0, grad=[1.0, -1.0])
    rate, betas = tenon.tensor(0.1), (tenon.tensor([0.5]), tenon.tensor(0.75))

    Adam([p], lr=rate, betas=betas).step()
    Adam([q], lr=rate.item(), betas=(0.5, 0.75)).step()

    assert p.tolist() == q.tolist()


@pytest.mark.parametrize(
    "flags", [{"foreach": True}, {"foreach": False}, {"fused": True}, {"capturable": True}]
)
def test_flags_for_variants_are_accepted_and_change_nothing(flags):
    results = []
    for options in ({}, flags):
        p = parameter(1.0, 2.0, grad=[0.3, -0.4])
        optimizer = AdamW([p], **options)
        for _ in range(3):
            optimizer.step()
        results.append(p.tolist())

    assert results[0] == results[1]


def test_state_made_by_hand_before_the_first_step_is_kept():
    p = parameter(1.0, grad=[1.0])
    optimizer = SGD([p], lr=1.0, momentum=0.5)
    optimizer.state[p]["momentum_buffer"] = tenon.tensor([2.0])

    optimizer.step()

    assert optimizer.state[p]["momentum_buffer"].tolist() == [2.0]
    assert p.tolist() == [-1.0]


def test_step_counts_are_tensors_that_readers_may_set():
    p = parameter(1.0, grad=[1.0])
    optimizer = Adam([p])
    optimizer.step()

    step = optimizer.state[p]["step"]
    step.fill_(10)
    optimizer.step()

    assert optimizer.state[p]["step"] is step and step.item() == 11
    assert step.dtype is tenon.float32 and step.shape == () and step.device.type == "cpu"
    optimizer.state[p]["step"] = 20  # as checkpoints of old have it
    optimizer.step()
    assert optimizer.state[p]["step"] == 21


# --- parameters of every kind ---


def test_noncontiguous_parameters_and_gradients_are_updated_in_their_own_memory():
    for name in ("SGD", "Adam", "RMSprop"):
        memory = tenon.arange(12, dtype=tenon.float32).reshape(3, 4)
        strided, transposed = nn.Parameter(memory[:, ::2]), nn.Parameter(memory[:, 1::2].t())
        plain = [nn.Parameter(p.detach().clone().contiguous()) for p in (strided, transposed)]
        for p, q in zip((strided, transposed), plain, strict=True):
            p.grad = tenon.arange(6, dtype=tenon.float32).reshape(p.shape[1], p.shape[0]).t()
            q.grad = p.grad.contiguous()
        one, other = getattr(tenon.optim, name)([strided, transposed]), getattr(tenon.optim, name)(plain)
        for _ in range(3):
            one.step()
            other.step()

        assert strided.tolist() == plain[0].tolist() and transposed.tolist() == plain[1].tolist()
        assert memory[:, ::2].tolist() == plain[0].tolist()


def test_large_noncontiguous_and_complex_parameters_go_in_pieces_too():
    base = tenon.randn(2, 70_000)
    p, q = nn.Parameter(base.t()), nn.Parameter(base.t().clone().contiguous())
    p.grad = q.grad = tenon.randn(70_000, 2)
    for one in (p, q):
        optimizer = Adam([one], lr=0.1)
        optimizer.step()
        optimizer.step()
    assert tenon.equal(p, q)

    z = nn.Parameter(tenon.ones(70_000, dtype=tenon.complex64))
    z.grad = tenon.ones(70_000, dtype=tenon.complex64) * (1 + 2j)
    Adam([z], lr=0.5).step()
    np.testing.assert_allclose(z.detach().numpy(), np.full(70_000, 0.5 - 0.5j), rtol=1e-6)


def test_meta_parameters_take_steps_without_data():
    p = nn.Parameter(tenon.ones(3, 2, device="meta"))
    p.grad = tenon.ones(3, 2, device="meta")
    optimizer = AdamW([p])

    optimizer.step()
    optimizer.step()

    assert optimizer.state[p]["exp_avg"].device.type == "meta"
    assert optimizer.state[p]["step"].item() == 2
    assert p.shape == (3, 2)


def test_a_model_cast_after_its_first_step_goes_on():
    model = nn.Linear(3, 2)
    optimizer = Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        model(tenon.ones(1, 3)).sum().backward()
        optimizer.step()
    model.double()
    optimizer.zero_grad()

    model(tenon.ones(1, 3, dtype=tenon.float64)).sum().backward()
    before = model.weight.detach().clone()
    optimizer.step()

    assert model.weight.dtype is tenon.float64
    assert (before - model.weight).min().item() > 0.09


# --- gradients ---


def test_zero_grad_drops_gradients_or_sets_them_to_zero_in_place():
    p, q = parameter(1.0, grad=[1.0]), parameter(1.0)
    optimizer = SGD([p, q])
    grad = p.grad

    optimizer.zero_grad(set_to_none=False)

    assert p.grad.tolist() == [0.0] and grad.tolist() == [0.0] and q.grad is None
    optimizer.zero_grad()
    assert p.grad is None


@pytest.mark.filterwarnings("ignore:Using backward")
def test_zero_grad_in_place_cuts_the_gradients_own_history():
    p = parameter(2.0)
    (p**3).sum().backward(create_graph=True)

    SGD([p]).zero_grad(set_to_none=False)

    assert not p.grad.requires_grad and p.grad.tolist() == [0.0]


# --- differentiable steps ---


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_differentiable_steps_have_the_right_derivative_by_the_rate(name):
    def trained(rate):
        start = tenon.tensor([1.0, -2.0], dtype=tenon.float64, requires_grad=True)
        p = start.clone()
        optimizer = getattr(tenon.optim, name)([p], lr=rate, differentiable=True)
        for _ in range(3):
            loss = (p**2 * tenon.tensor([1.0, 3.0], dtype=tenon.float64)).sum()
            p.grad = tenon.autograd.grad(loss, p, create_graph=True)[0]
            optimizer.step()
        return (p * p).sum(), start

    rate = tenon.tensor(0.1, dtype=tenon.float64, requires_grad=True)
    loss, start = trained(rate)
    loss.backward()

    e = 1e-5
    low, high = (trained(tenon.tensor(0.1 + d, dtype=tenon.float64))[0].item() for d in (-e, e))
    np.testing.assert_allclose(rate.grad.item(), (high - low) / (2 * e), rtol=1e-5)
    assert start.grad is not None


def test_differentiable_steps_give_the_values_of_ordinary_ones():
    for name in ("SGD", "Adam", "RMSprop", "Adagrad"):
        results = []
        for differentiable in (False, True):
            p = tenon.tensor([1.0, -2.0]).clone()
            optimizer = getattr(tenon.optim, name)([p], lr=0.1, differentiable=differentiable)
            for step in range(3):
                p.grad = tenon.tensor([0.5, -1.0 * step])
                optimizer.step()
            results.append(p.tolist())
        np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_differentiable_steps_on_leaves_are_refused_as_by_torch():
    p = parameter(1.0, grad=[1.0])

    with pytest.raises(GradError, match="leaf Variable that requires grad"):
        SGD([p], differentiable=True).step()


# --- hooks ---


def test_hooks_run_in_order_see_the_arguments_and_may_replace_them():
    p = parameter(1.0)
    optimizer = SGD([p], lr=0.1)
    calls = []

    def loss():
        calls.append("closure")
        return 5

    def replace(o, args, kwargs):
        calls.append(("own before", args == (optimizer,), kwargs))
        return args, {"closure": loss}

    handles = [
        register_optimizer_step_post_hook(lambda o, args, kwargs: calls.append("global after")),
        register_optimizer_step_pre_hook(lambda o, args, kwargs: calls.append("global before")),
    ]
    optimizer.register_step_pre_hook(replace)
    optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append(("own after", kwargs)))
    try:
        assert optimizer.step() == 5
    finally:
        for handle in handles:
            handle.remove()

    assert calls == [
        "global before",
        ("own before", True, {}),
        "closure",
        ("own after", {"closure": loss}),
        "global after",
    ]


def test_a_pre_hook_that_returns_something_else_is_an_error():
    optimizer = SGD([parameter(1.0)])
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)

    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()
    handle.remove()
    optimizer.step()


# --- copies ---


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["deepcopy", "pickle"]
)
def test_copies_go_on_by_themselves(copied):
    p, q = parameter(1.0, 2.0, grad=[1.0, -1.0]), parameter(3.0, grad=[0.5])
    optimizer = AdamW([("p", p), ("q", q)], lr=0.1)
    for _ in range(3):
        optimizer.step()

    twin = copied(optimizer)
    mine = twin.param_groups[0]["params"]
    for one, other in zip(mine, (p, q), strict=True):
        assert one is not other
        one.grad = other.grad.clone()
    optimizer.step()
    twin.step()
    twin.step()
    optimizer.step()

    assert repr(twin) == repr(optimizer)
    assert [one.tolist() for one in mine] == [p.tolist(), q.tolist()]
    assert {type(k) for k in twin.state} == {nn.Parameter}
    assert twin.state[mine[0]]["exp_avg"].tolist() == optimizer.state[p]["exp_avg"].tolist()
    assert twin.state[mine[0]]["exp_avg"] is not optimizer.state[p]["exp_avg"]


def test_repr_lists_the_groups():
    assert (
        repr(Lion([parameter(1.0)]))
        == "Lion (\nParameter Group 0\n    beta1: 0.9\n    beta2: 0.99\n    lr: 0.0001\n)"
    )
