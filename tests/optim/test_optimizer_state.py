"""Saving and loading optimizers: by name, strict, atomic; and their hooks."""

from __future__ import annotations

import copy
from typing import ClassVar

import pytest

import tenon
from tenon import nn
from tenon.errors import OptimizerStateError
from tenon.optim import SGD, Adagrad, Adam, AdamW
from tenon.optim.optimizer import Optimizer


def trained(names, make=Adam, steps=3, **options):
    """An optimizer of parameters with these names after some steps; shapes and gradients follow from them."""
    ps = {name: nn.Parameter(tenon.zeros(len(name), 2)) for name in names}
    optimizer = make(list(ps.items()), **options)
    for step in range(steps):
        for i, (name, p) in enumerate(sorted(ps.items())):
            p.grad = tenon.full((len(name), 2), float(step + i + 1))
        optimizer.step()
    return ps, optimizer


def contents(optimizer):
    """Everything that loading may change, as plain values."""
    names = {
        id(p): n for g in optimizer.param_groups for n, p in zip(g["param_names"], g["params"], strict=True)
    }
    state = {
        names[id(p)]: {k: v.tolist() if isinstance(v, tenon.Tensor) else v for k, v in entry.items()}
        for p, entry in optimizer.state.items()
    }
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return state, copy.deepcopy(groups)


def test_state_dict_has_torchs_layout_and_shares_the_tensors():
    ps, optimizer = trained(["ab", "c"])

    saved = optimizer.state_dict()

    assert list(saved) == ["state", "param_groups"]
    assert list(saved["state"]) == [0, 1]
    assert saved["param_groups"][0]["params"] == [0, 1]
    assert saved["param_groups"][0]["param_names"] == ["ab", "c"]
    assert saved["state"][1]["exp_avg"] is optimizer.state[ps["c"]]["exp_avg"]
    assert saved["state"][1]["step"].item() == 3


def test_state_follows_the_name_when_the_order_of_parameters_changed():
    _, saved = trained(["aa", "bb", "cc"])
    ps, optimizer = trained(["cc", "aa", "bb"], steps=0)

    optimizer.load_state_dict(saved.state_dict())

    assert contents(optimizer)[0] == contents(saved)[0]
    assert optimizer.param_groups[0]["param_names"] == ["cc", "aa", "bb"]
    assert optimizer.param_groups[0]["params"][0] is ps["cc"]


def test_training_goes_on_the_same_after_loading_in_another_order():
    first, saved = trained(["aa", "bb", "cc"])
    second, resumed = trained(["bb", "cc", "aa"], steps=0)
    resumed.load_state_dict(saved.state_dict())
    for name, p in second.items():
        p.data.copy_(first[name].data)

    for ps, optimizer in ((first, saved), (second, resumed)):
        for _ in range(3):
            for i, name in enumerate(sorted(ps)):
                ps[name].grad = tenon.full((2, 2), float(i - 1))
            optimizer.step()

    assert {n: p.tolist() for n, p in first.items()} == {n: p.tolist() for n, p in second.items()}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: d["param_groups"].pop(), "different number of parameter groups: 1, this optimizer has 2"),
        (lambda d: d["param_groups"][0]["params"].pop(), "doesn't match the size of optimizer's group"),
        (
            lambda d: d["param_groups"][0]["param_names"].__setitem__(0, "old"),
            "names of group 0: missing 'ab'; unexpected 'old'",
        ),
        (
            lambda d: (
                d["param_groups"][0].update(param_names=["ab", "x"]),
                d["param_groups"][1].update(param_names=["c"]),
            ),
            r"missing 'c' \(saved in group 1\); unexpected 'x'",
        ),
        (
            lambda d: d["state"][1].update(exp_avg=tenon.ones(3, 2)),
            r"'exp_avg' of parameter 'c' has shape \[3, 2\], but \[1, 2\]",
        ),
        (lambda d: d["state"][2].update(exp_avg_sq=tenon.ones(6)), r"'exp_avg_sq' of parameter 'def' has"),
        (lambda d: d["state"][1].update(max_exp_avg_sq=tenon.ones(2)), r"'max_exp_avg_sq' of parameter 'c'"),
        (lambda d: d["state"][2].pop("exp_avg"), "'def' lacks 'exp_avg' and has 'step', 'exp_avg_sq'"),
        (lambda d: d["state"][2].pop("step"), "lacks 'step'"),
        (lambda d: d["state"][2].update(step="three"), "'step' of parameter 'def' is 'three', not a number"),
        (lambda d: d.pop("state"), "not an optimizer's state dict: it lacks 'state'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(damage, words):
    def make():
        ps = {n: nn.Parameter(tenon.ones(len(n), 2)) for n in ("ab", "c", "def")}
        first, second = list(ps.items())[:2], list(ps.items())[2:]
        optimizer = Adam([{"params": first}, {"params": second, "lr": 0.5}])
        for p in ps.values():
            p.grad = tenon.ones_like(p)
        optimizer.step()
        return optimizer

    saved = copy.deepcopy(make().state_dict())
    optimizer = make()
    optimizer.step()
    before, entries = contents(optimizer), dict(optimizer.state)
    damage(saved)

    with pytest.raises(OptimizerStateError, match=words):
        optimizer.load_state_dict(saved)

    assert contents(optimizer) == before
    assert all(optimizer.state[p] is entry for p, entry in entries.items())


def test_state_of_another_optimizer_is_refused():
    _, momentum = trained(["ab"], SGD, momentum=0.9)
    _, optimizer = trained(["ab"], AdamW)
    before = contents(optimizer)

    with pytest.raises(OptimizerStateError, match="another optimizer than AdamW saved it"):
        optimizer.load_state_dict(momentum.state_dict())

    assert contents(optimizer) == before


def test_a_subclass_that_refuses_in_setstate_leaves_the_optimizer_as_it_was():
    class Picky(SGD):
        def __setstate__(self, state):
            super().__setstate__(state)
            raise KeyError("picky")

    _, optimizer = trained(["ab"], Picky, momentum=0.5)
    before, entries = contents(optimizer), dict(optimizer.state)

    with pytest.raises(KeyError, match="picky"):
        optimizer.load_state_dict(trained(["ab"], SGD, momentum=0.9)[1].state_dict())

    assert contents(optimizer) == before
    assert all(optimizer.state[p] is entry for p, entry in entries.items())


def test_loading_copies_so_that_both_optimizers_go_their_own_way():
    _, saved = trained(["ab"])
    _, optimizer = trained(["ab"], steps=0)
    snapshot = saved.state_dict()

    optimizer.load_state_dict(snapshot)
    for p in optimizer.param_groups[0]["params"]:
        p.grad = tenon.ones_like(p)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 9

    assert saved.param_groups[0]["lr"] != 9
    assert [s["step"].item() for s in saved.state.values()] == [3]
    assert [s["step"].item() for s in optimizer.state.values()] == [4]


def test_state_takes_the_parameters_dtype_but_the_step_count_stays_float32():
    _, saved = trained(["ab"])
    p = nn.Parameter(tenon.zeros(2, 2, dtype=tenon.float64))
    optimizer = Adam([("ab", p)])

    optimizer.load_state_dict(saved.state_dict())

    assert optimizer.state[p]["exp_avg"].dtype is tenon.float64
    assert optimizer.state[p]["step"].dtype is tenon.float32


def test_step_counts_of_old_checkpoints_may_be_numbers():
    _, saved = trained(["ab"])
    state = saved.state_dict()
    state["state"][0]["step"] = 3
    _, optimizer = trained(["ab"], steps=0)

    optimizer.load_state_dict(state)

    (entry,) = optimizer.state.values()
    assert entry["step"].item() == 3 and entry["step"].dtype is tenon.float32


def test_momentum_that_was_saved_as_none_starts_anew():
    _, optimizer = trained(["ab"], SGD, momentum=0.5, steps=0)
    state = optimizer.state_dict()
    state["state"] = {0: {"momentum_buffer": None}}
    optimizer.load_state_dict(state)
    (p,) = optimizer.param_groups[0]["params"]
    p.grad = tenon.ones_like(p)

    optimizer.step()

    assert optimizer.state[p]["momentum_buffer"].tolist() == [[1.0, 1.0]] * 2


def test_options_that_are_newer_than_the_checkpoint_get_their_defaults():
    _, saved = trained(["ab"], AdamW)
    state = saved.state_dict()
    for option in ("amsgrad", "decoupled_weight_decay"):
        del state["param_groups"][0][option]
    _, optimizer = trained(["ab"], AdamW, steps=0)

    optimizer.load_state_dict(state)

    assert optimizer.param_groups[0]["amsgrad"] is False
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


def test_without_names_on_one_side_position_decides_and_saved_names_are_taken():
    _, named = trained(["ab", "cd"])
    ps = [nn.Parameter(tenon.zeros(2, 2)) for _ in range(2)]
    unnamed = Adam(ps)

    unnamed.load_state_dict(named.state_dict())

    assert unnamed.param_groups[0]["param_names"] == ["ab", "cd"]
    _, other = trained(["x1", "x2"], steps=0)
    plain = unnamed.state_dict()
    del plain["param_groups"][0]["param_names"]
    other.load_state_dict(plain)
    assert other.param_groups[0]["param_names"] == ["x1", "x2"]


def test_shared_parameters_have_one_entry():
    p, q = nn.Parameter(tenon.ones(1)), nn.Parameter(tenon.ones(1))
    with pytest.warns(UserWarning, match="duplicate"):
        optimizer = SGD([p, p, q], momentum=0.5)
    for each in (p, q):
        each.grad = tenon.ones(1)
    optimizer.step()

    assert optimizer.state_dict()["param_groups"][0]["params"] == [0, 0, 2]
    assert list(optimizer.state_dict()["state"]) == [0, 2]


def test_state_that_belongs_to_no_parameter_is_kept():
    _, optimizer = trained(["ab"], SGD)
    optimizer.state["total"] = {"calls": 3}
    _, other = trained(["ab"], SGD)

    other.load_state_dict(optimizer.state_dict())

    assert other.state["total"] == {"calls": 3}


def test_containers_in_the_state_of_torch_style_optimizers_are_copied_through():
    class History(Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        @tenon.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state.setdefault("seen", []).append(p.grad.clone())
                    state["count"] = {"n": len(state["seen"])}

    _, saved = trained(["ab"], History)
    (p,) = (one := History([nn.Parameter(tenon.zeros(2, 2, dtype=tenon.float64))])).param_groups[0]["params"]

    one.load_state_dict(saved.state_dict())

    assert one.state[p]["count"] == {"n": 3}
    assert [t.dtype for t in one.state[p]["seen"]] == [tenon.float64] * 3
    (original,) = saved.state.values()
    assert one.state[p]["seen"][0] is not original["seen"][0]


def test_rules_that_look_at_the_whole_may_have_state_of_other_shapes():
    class Factored(Optimizer):
        defaults: ClassVar = {"lr": 0.1}

        def init(self, f, p):
            return {"rows": f.sum(f.zeros_like(p), axes=(1,), keepdims=False), "calls": 0}

        def update(self, f, p, g, s, h):
            rows = s["rows"] + f.sum(f.mul(g, g), axes=(1,), keepdims=True).reshape(-1)
            return p - h.lr * g, {
                "rows": rows,
                "calls": s["calls"] + 1,
                "norm": f.sum(g, axes=(0, 1), keepdims=False),
            }

    ps, saved = trained(["ab", "cde"], Factored)
    _, optimizer = trained(["cde", "ab"], Factored, steps=0)

    optimizer.load_state_dict(saved.state_dict())

    assert contents(optimizer)[0] == contents(saved)[0]
    assert saved.state[ps["cde"]]["rows"].tolist() == [2 * (4 + 9 + 16)] * 3
    assert saved.state[ps["cde"]]["calls"] == 3
    state = saved.state_dict()
    state["state"][0]["rows"] = tenon.ones(5)
    with pytest.raises(OptimizerStateError, match=r"'rows' of parameter 'ab' has shape \[5\], but \[2\]"):
        optimizer.load_state_dict(state)


def test_adagrad_has_its_state_from_the_start():
    ps, optimizer = trained(["ab"], Adagrad, steps=0, initial_accumulator_value=0.5)

    assert optimizer.state[ps["ab"]]["sum"].tolist() == [[0.5, 0.5]] * 2
    assert optimizer.state[ps["ab"]]["step"].item() == 0


def test_hooks_around_saving_and_loading_run_in_order_and_may_replace():
    _, optimizer = trained(["ab"], SGD)
    calls = []

    def note(name, result=None):
        def hook(o, *rest):
            assert o is optimizer
            calls.append((name, len(rest)))
            return result(*rest) if result else None

        return hook

    optimizer.register_state_dict_pre_hook(note("save 2"))
    optimizer.register_state_dict_pre_hook(note("save 1"), prepend=True)
    optimizer.register_state_dict_post_hook(note("saved", lambda d: d | {"extra": 1}))
    optimizer.register_load_state_dict_post_hook(note("loaded 2"))
    optimizer.register_load_state_dict_post_hook(note("loaded 1"), prepend=True)
    handle = optimizer.register_load_state_dict_pre_hook(
        note("load", lambda d: {**d, "param_groups": [d["param_groups"][0] | {"lr": 7}]})
    )

    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)

    assert saved["extra"] == 1
    assert optimizer.param_groups[0]["lr"] == 7 and saved["param_groups"][0]["lr"] != 7
    assert calls == [
        ("save 1", 0),
        ("save 2", 0),
        ("saved", 1),
        ("load", 1),
        ("loaded 1", 0),
        ("loaded 2", 0),
    ]
    handle.remove()
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] != 7


def test_a_hook_may_rename_parameters_of_an_old_checkpoint():
    _, old = trained(["aa", "bb"])
    _, optimizer = trained(["xx", "yy"], steps=0)

    def rename(o, state_dict):
        for group in state_dict["param_groups"]:
            group["param_names"] = [{"aa": "yy", "bb": "xx"}[n] for n in group["param_names"]]

    optimizer.register_load_state_dict_pre_hook(rename)
    optimizer.load_state_dict(copy.deepcopy(old.state_dict()))

    mine, theirs = contents(optimizer)[0], contents(old)[0]
    assert (mine["xx"], mine["yy"]) == (theirs["bb"], theirs["aa"])


def test_state_of_batched_parameters_is_saved_to_a_file_and_read_again(tmp_path):
    _, optimizer = trained(["ab", "c", "def"], steps=6)

    tenon.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    _, other = trained(["def", "ab", "c"], steps=0)
    other.load_state_dict(tenon.load(tmp_path / "optimizer.pt"))

    assert contents(other)[0] == contents(optimizer)[0]
    assert (tmp_path / "optimizer.pt").stat().st_size < 8000
