"""Orthogonal, spectral and weight normalization: properties and errors."""

import warnings

import pytest

import tenon
from tenon import nn
from tenon.nn.utils import parametrizations, parametrize


def distance_from_orthogonal(weight):
    weight = weight if weight.shape[-2] >= weight.shape[-1] else weight.mT
    identity = tenon.eye(weight.shape[-1], dtype=weight.dtype)
    return float((weight.mT @ weight - identity).abs().max())


@pytest.mark.parametrize(
    "name", [pytest.param("matrix_exp", marks=pytest.mark.slow), "cayley", "householder"]
)
@pytest.mark.parametrize(
    "shape", [(4, 6), *(pytest.param(s, marks=pytest.mark.slow) for s in ((6, 4), (5, 5)))], ids=str
)
def test_orthogonal_weights_stay_orthogonal_for_200_steps(name, shape):
    tenon.manual_seed(0)
    layer = parametrizations.orthogonal(nn.Linear(*shape), orthogonal_map=name)
    optimizer = tenon.optim.Adam(layer.parameters(), lr=0.05)
    x, target = tenon.randn(8, shape[0]), tenon.randn(8, shape[1])
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = (layer(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert distance_from_orthogonal(layer.weight) < 2e-5
    assert losses[-1] < losses[0]


def test_the_spectral_norm_is_one_after_200_steps():
    tenon.manual_seed(0)
    layer = parametrizations.spectral_norm(nn.Linear(6, 5))
    optimizer = tenon.optim.SGD(layer.parameters(), lr=0.05)
    x, target = tenon.randn(8, 6), 3 * tenon.randn(8, 5)
    for _ in range(200):
        optimizer.zero_grad()
        (layer(x) - target).square().mean().backward()
        optimizer.step()

    assert abs(float(tenon.linalg.svdvals(layer.weight)[0]) - 1) < 2e-2  # the iteration trails the steps
    with tenon.no_grad():
        for _ in range(100):
            weight = layer.weight
    assert abs(float(tenon.linalg.svdvals(weight)[0]) - 1) < 1e-4


@pytest.mark.parametrize("based", [True, False])
def test_householder_takes_any_orthogonal_matrix(based):
    tenon.manual_seed(0)
    layer = nn.Linear(3, 5)
    parametrizations.orthogonal(layer, orthogonal_map="householder", use_trivialization=based)
    q, _ = tenon.linalg.qr(tenon.randn(5, 3))

    layer.weight = q

    assert tenon.allclose(layer.weight, q, atol=1e-6)


def test_householder_takes_batches_and_matrices_with_zero_columns_below():
    module = nn.Module()
    module.weight = nn.Parameter(tenon.eye(4)[:, :2].expand(3, 4, 2).clone())

    parametrizations.orthogonal(module, orthogonal_map="householder", use_trivialization=False)

    assert tenon.allclose(module.weight, tenon.eye(4)[:, :2].expand(3, 4, 2), atol=1e-6)


def test_maps_without_a_base_cannot_be_assigned_to():
    layer = parametrizations.orthogonal(nn.Linear(3, 3), use_trivialization=False)

    with pytest.raises(NotImplementedError, match="Cayley parametrizations when use_trivialization=False"):
        layer.weight = tenon.eye(3)


@pytest.mark.parametrize("name", ["matrix_exp", "cayley"])
def test_complex_weights_become_unitary(name):
    tenon.manual_seed(0)
    layer = parametrizations.orthogonal(nn.Linear(3, 3, dtype=tenon.complex64), orthogonal_map=name)

    product = layer.weight.mH @ layer.weight

    assert tenon.allclose(product, tenon.eye(3, dtype=tenon.complex64), atol=1e-5)


def test_the_second_of_two_maps_is_orthogonal_too():
    layer = parametrizations.spectral_norm(nn.Linear(4, 4))

    parametrizations.orthogonal(layer)

    assert distance_from_orthogonal(layer.weight) < 1e-5


REFUSED = {
    "an unknown map": (lambda m: parametrizations.orthogonal(m, orthogonal_map="qr"), "has to be one of"),
    "a vector": (lambda m: parametrizations.orthogonal(m, "bias"), "Expected a matrix"),
    "no such tensor": (lambda m: parametrizations.orthogonal(m, "wait"), "no parameter or buffer"),
    "no tensor to scale": (lambda m: parametrizations.spectral_norm(m, "wait"), "no parameter or buffer"),
    "no tensor to split": (lambda m: parametrizations.weight_norm(m, "wait"), "no parameter or buffer"),
    "no iteration": (lambda m: parametrizations.spectral_norm(m, n_power_iterations=0), "to be positive"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(case):
    attach, message = REFUSED[case]
    layer = nn.Linear(3, 4)

    with pytest.raises(ValueError, match=message):
        attach(layer)

    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_other_refusals():
    with pytest.raises(IndexError, match="Dimension out of range"):
        parametrizations.spectral_norm(nn.Linear(2, 2), dim=2)
    with pytest.raises(ValueError, match="does not support complex"):
        parametrizations.orthogonal(nn.Linear(2, 2, dtype=tenon.complex64), orthogonal_map="householder")
    layer = parametrizations.orthogonal(nn.Linear(3, 4))
    with pytest.raises(ValueError, match="matrices of shape"):
        layer.weight = tenon.ones(5, 5)


def test_a_vector_is_divided_by_its_length():
    layer = parametrizations.spectral_norm(nn.Linear(3, 4), "bias")

    assert abs(float(layer.bias.norm()) - 1) < 1e-6


# --- the older faces ---


def older(name, layer, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return getattr(nn.utils, name)(layer, **options)


def test_the_older_weight_norm_warns_and_its_checkpoints_load_into_the_newer():
    with pytest.warns(FutureWarning, match="parametrizations.weight_norm"):
        old = nn.utils.weight_norm(nn.Linear(3, 4))
    new = parametrizations.weight_norm(nn.Linear(3, 4))

    new.load_state_dict(old.state_dict())

    assert tenon.equal(new.weight, old.weight)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_the_older_norms_are_removed_as_they_came(name):
    layer = older(name, nn.Linear(3, 4)).eval()
    value = layer.weight.detach().clone()

    with pytest.raises(RuntimeError, match="Cannot register two"):
        older(name, layer)
    with pytest.raises(ValueError, match="no parametrization can follow these"):
        parametrize.register_parametrization(layer, "weight", nn.Identity())
    getattr(nn.utils, f"remove_{name}")(layer)

    assert isinstance(layer.weight, nn.Parameter) and tenon.allclose(layer.weight, value)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and not layer._forward_pre_hooks
    with pytest.raises(ValueError, match=f"{name} of 'weight' not found"):
        getattr(nn.utils, f"remove_{name}")(layer)


def test_the_older_norms_take_assignments_and_masks():
    layer = older("weight_norm", nn.Linear(3, 4), dim=None)
    target = tenon.randn(4, 3)
    layer.weight = target
    assert tenon.allclose(layer.weight, target)
    with pytest.raises(ValueError, match="cannot assign a tensor of shape"):
        layer.weight = tenon.ones(5, 3)
    with pytest.raises(ValueError, match="Expected n_power_iterations"):
        nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)

    nn.utils.prune.l1_unstructured(layer, "weight", 4)
    assert int((layer.weight == 0).sum()) == 4
    nn.utils.remove_weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight_mask", "weight_orig"]


def test_the_older_spectral_norm_loads_what_was_saved_before_its_vector_v():
    x = tenon.randn(2, 3)
    layer = nn.utils.spectral_norm(nn.Linear(3, 5))
    for _ in range(3):
        layer(x)
    state = layer.state_dict()
    assert state._metadata[""]["spectral_norm"] == {"weight.version": 1}
    layer.eval()
    wanted = layer(x)
    del state._metadata[""]["spectral_norm"], state["weight_v"]
    state["weight"] = layer.weight.detach()

    other = nn.utils.spectral_norm(nn.Linear(3, 5)).eval()
    other.load_state_dict(state)

    assert tenon.allclose(other(x), wanted, atol=1e-6)
    with pytest.raises(RuntimeError, match="weight_u"):
        other.load_state_dict({"weight_orig": state["weight_orig"]})
    assert "spectral_norm" not in nn.utils.remove_spectral_norm(other).state_dict()._metadata[""]
