"""Parametrizing and pruning one weight in every order: invariants of every combination."""

import copy
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import smaller_models
from orders import DEEP, ORDERS, SHORT, built, trained

import tenon
from tenon import nn
from tenon.compress import load
from tenon.compress.receipt import difference
from tenon.nn.utils import parametrize, prune
from tenon.testing.suites.communicator import launch

PROGRAM = Path(__file__).parent / "programs" / "train_orders.py"

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def output(layer):
    return layer(tenon.from_numpy(X)).detach().numpy()


@pytest.mark.together
@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_every_order_trains_copies_pickles_saves_loads_and_casts(order, tmp_path):
    layer = built(order)
    layer(tenon.from_numpy(X)).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    layer.eval()
    expected = output(layer)

    fresh = built(order).eval()
    tenon.save(layer.state_dict(), tmp_path / "model.pt")
    fresh.load_state_dict(tenon.load(tmp_path / "model.pt"))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), fresh):
        assert (output(other) == expected).all()
    wide = copy.deepcopy(layer).double()
    assert wide.weight.dtype == tenon.float64
    np.testing.assert_allclose(wide(tenon.from_numpy(X).double()).detach().numpy(), expected, atol=1e-5)


@pytest.mark.together
@pytest.mark.parametrize("order", ORDERS, ids="+".join)
@pytest.mark.parametrize("first", ["parametrizations", "masks"])
def test_baking_keeps_the_value_and_ends_in_a_plain_layer(order, first):
    layer = built(order).eval()
    expected = output(layer)

    for _ in order:
        if parametrize.is_parametrized(layer) and (first == "parametrizations" or not prune.is_pruned(layer)):
            parametrize.remove_parametrizations(layer, "weight")
        elif prune.is_pruned(layer):
            prune.remove(layer, "weight")
        np.testing.assert_allclose(output(layer), expected, atol=1e-6)

    assert sorted(layer.state_dict()) == ["bias", "weight"] and isinstance(layer.weight, nn.Parameter)
    assert not layer._forward_pre_hooks and "_weights" not in layer.__dict__


@pytest.mark.parametrize(
    "order", [("spectral", "prune"), ("prune", "spectral"), ("prune", "orthogonal", "rows")]
)
def test_dropping_the_parametrizations_leaves_the_masks(order):
    layer = built(order)
    masks = {name: buffer.clone() for name, buffer in layer.named_buffers() if "_mask" in name}

    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)

    expected = layer.weight_orig
    for mask in masks.values():
        expected = expected * mask
    assert tenon.equal(layer.weight, expected)
    assert set(layer.state_dict()) == {"bias", "weight_orig", *masks}


def test_both_orders_save_under_the_same_names():
    names = {"bias", "weight_mask", "parametrizations.weight.original"}
    names |= {"parametrizations.weight.0._u", "parametrizations.weight.0._v"}

    assert set(built(("prune", "spectral")).state_dict()) == names
    assert set(built(("spectral", "prune")).state_dict()) == names


def test_a_mask_of_its_own_follows_a_parametrization():
    layer = built(("prune", "orthogonal", "prune"))

    assert {"weight_mask", "weight_mask_2"} <= set(dict(layer.named_buffers()))
    assert (layer.weight[layer.weight_mask_2 == 0] == 0).all()


def test_the_original_stays_readable_whatever_it_is():
    layer = built(("prune", "spectral"))
    assert layer.weight_orig is layer.parametrizations.weight.original

    layer = built(("spectral", "prune")).eval()
    assert tenon.allclose(layer.weight_orig * layer.weight_mask, layer.weight)
    with pytest.raises(RuntimeError, match="Assign to 'weight'"):
        layer.weight_orig = tenon.ones(4, 4)


def test_assigning_stores_through_masks_and_parametrizations():
    layer = built(("orthogonal", "prune"))
    q, _ = tenon.linalg.qr(tenon.randn(4, 4))

    layer.weight = q

    assert tenon.allclose(layer.weight, q * layer.weight_mask, atol=1e-5)


@pytest.mark.parametrize(
    "order",
    [
        ("prune", "spectral"),
        *(pytest.param(o, marks=pytest.mark.slow) for o in (("lengths", "rows"), ("orthogonal", "prune"))),
    ],
)
def test_a_compiled_layer_follows_every_step_that_comes_and_goes(order):
    layer = built(order).eval()
    compiled = tenon.compile(layer)
    x = tenon.from_numpy(X)

    def follows():
        for _ in range(2):
            np.testing.assert_allclose(compiled(x).detach().numpy(), output(layer), atol=1e-6)

    follows()
    prune.random_unstructured(layer, "weight", 0.5)
    follows()
    parametrize.register_parametrization(layer, "weight", nn.Tanh())
    follows()
    parametrize.remove_parametrizations(layer, "weight")
    follows()


@pytest.mark.parametrize(
    "order",
    [
        DEEP[0],
        *(pytest.param(o, marks=pytest.mark.slow) for o in (*DEEP[1:], *(o for o in SHORT if len(o) == 1))),
        *(pytest.param(o, marks=pytest.mark.manual) for o in SHORT if len(o) > 1),
    ],
    ids="+".join,
)
def test_a_compiled_training_step_is_the_step_itself(order):
    losses, weights = [], []
    for compiled in (False, True):
        layer = built(order)
        optimizer = tenon.optim.SGD(layer.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = layer(x).tanh().sum()
            loss.backward()
            optimizer.step()
            return loss

        run = tenon.compile(step, fullgraph=True) if compiled else step
        losses.append([run(tenon.from_numpy(X)).item() for _ in range(4)])
        weights.append(layer.eval().weight.detach().numpy())

    np.testing.assert_allclose(*losses, rtol=1e-4)
    np.testing.assert_allclose(*weights, atol=1e-4)


@pytest.mark.slow
@pytest.mark.mpi
def test_two_ranks_train_every_order_and_smaller_models_as_one_does(tmp_path):
    done = launch(2, [str(PROGRAM), str(tmp_path / "states.safetensors")])
    assert done.returncode == 0, done.stderr
    states = {}
    for name, value in tenon.load(tmp_path / "states.safetensors").items():
        model, _, key = name.partition("/")
        states.setdefault(model, {})[key] = value

    x = tenon.from_numpy(np.random.default_rng(1).standard_normal((8, 4)))
    models = {"+".join(order): (built(order).double(), x) for order in ORDERS}
    models |= {name: make() for name, make in smaller_models.MODELS.items()}
    assert states.keys() == {*models, "converted"}
    for name, (model, x) in models.items():
        if name != "prepared":  # its limits are those of one rank's share
            state = trained(model, x).state_dict()
            assert state.keys() == states[name].keys()
            for key, value in state.items():
                np.testing.assert_allclose(states[name][key], value, atol=1e-6, err_msg=f"{name}/{key}")

    wanted = states["converted"].pop("outputs")
    model, x = smaller_models.images()
    assert difference(load(model, states["converted"]).eval()(x), wanted) == 0
    assert states["converted"]["0.weight"].shape[0] == 4
    fresh = load(smaller_models.Attention(), states["compacted"])
    assert fresh.qkv.weight.shape == (24, 16) and fresh(tenon.randn(3, 2, 16)).shape == (3, 2, 16)
