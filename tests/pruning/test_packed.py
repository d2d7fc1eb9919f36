"""Linear layers that store only nonzero elements: values, gradients, when they are used, saving."""

import copy

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.compress.receipt import difference
from tenon.errors import PruningError, ShapeError, TenonError
from tenon.prune import PackedLinear
from tenon.prune import packed as packing


def sparse_layer(inputs=200, outputs=150, bias=True):
    tenon.manual_seed(0)
    layer = nn.Linear(inputs, outputs, bias)
    with tenon.no_grad():
        layer.weight.mul_((tenon.rand(outputs, inputs) < 0.08).float())
        layer.weight[3] = 0
    return layer


@pytest.mark.parametrize("shape", [(200,), (1, 200), (17, 200), (2, 33, 200), (0, 200)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_computes_what_the_dense_one_does(shape, bias):
    dense = sparse_layer(bias=bias)
    packed = PackedLinear.of(dense)
    x = tenon.randn(shape, requires_grad=True)
    y = x.detach().clone().requires_grad_()

    out, wanted = packed(x), dense(y)
    assert difference(out, wanted) < 1e-5 and out.shape == wanted.shape
    out.square().sum().backward()
    wanted.square().sum().backward()

    assert difference(x.grad, y.grad) < 1e-3
    kept = dense.weight.detach().numpy() != 0
    assert np.allclose(packed.values.grad.numpy(), dense.weight.grad.numpy()[kept], rtol=1e-4, atol=1e-3)
    assert not bias or difference(packed.bias.grad, dense.bias.grad) < 1e-3


def test_a_packed_layer_runs_compiled_and_in_float64():
    packed = PackedLinear.of(sparse_layer()).eval()
    x = tenon.randn(40, 200)
    compiled = tenon.compile(packed)
    with tenon.no_grad():
        for _ in range(3):
            assert difference(compiled(x), packed(x)) < 1e-6
        assert difference(copy.deepcopy(packed).double()(x.double()), packed(x).double()) < 1e-5


def wide():
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))


@pytest.fixture
def always(monkeypatch):
    """Make packed layers count as faster, whatever the measured times."""
    monkeypatch.setattr(packing, "_batch_not_faster", lambda *args: None)


def test_layers_that_are_zeros_enough_are_packed_and_reload(always, tmp_path):
    tenon.manual_seed(0)
    model = wide()
    tenon.prune.mask_weights(model[0], 0.95)
    x = tenon.randn(32, 256)
    wanted = model(x)

    receipt = tenon.prune.pack(model, x, seconds=0)

    assert isinstance(model[0], PackedLinear) and type(model[2]) is nn.Linear
    assert difference(model(x), wanted) < 1e-5
    assert receipt[""].bytes.ratio < 0.2 and "Linear -> PackedLinear" in str(receipt)
    tenon.save(model.state_dict(), tmp_path / "packed.safetensors")
    fresh = tenon.prune.load(wide(), tenon.load(tmp_path / "packed.safetensors"))
    assert difference(fresh(x), wanted) < 1e-5 and isinstance(fresh[0], PackedLinear)
    assert tenon.prune.load(fresh, model.state_dict()) is fresh  # and into one that is packed already


def test_compacted_models_can_be_packed(always):
    tenon.manual_seed(0)
    model = wide()
    tenon.prune.mask_channels(model, tenon.ones(1, 256), 0.5)
    tenon.prune.compact(model, tenon.ones(1, 256), seconds=0)
    tenon.prune.mask_weights(model[0], 0.95)
    x = tenon.randn(32, 256)
    wanted = model(x)

    tenon.prune.pack(model, x, seconds=0)

    assert difference(tenon.prune.load(wide(), model.state_dict())(x), wanted) < 1e-5


def test_a_layer_stays_dense_where_packed_it_is_slower(monkeypatch):
    monkeypatch.setattr(PackedLinear, "forward", lambda self, x: [x.sum() for _ in range(200)])
    tenon.manual_seed(0)
    model = wide()
    tenon.prune.mask_weights(model[0], 0.95)

    receipt = tenon.prune.pack(model, tenon.randn(4, 256), batch_sizes=(2,), seconds=0)

    assert receipt.notes == ("0 stays dense: it is not faster when packed, at batch 2",)
    assert type(model[0]) is nn.Linear and "pruned_structure" not in model.state_dict()


def test_models_without_sparse_layers_are_refused():
    with pytest.raises(PruningError, match=r"no linear layer of float32 is 90% zeros \(0: 0%, 2: 0%\)"):
        tenon.prune.pack(wide(), tenon.randn(1, 256))


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ((-1, 2, 0), "in_features"),
        ((2.5, 2, 1), "in_features"),
        (("a", 2, 1), "in_features"),
        ((True, 2, 1), "in_features"),
        ((70_000, 2, 1), "in_features"),
        ((2, None, 1), "out_features"),
        ((2, -1, 0), "out_features"),
        ((2, 2, 5), "count"),
        ((2, 2, 1.5), "count"),
        ((2, 2, 1, "x"), "bias"),
    ],
    ids=str,
)
def test_sizes_that_no_packed_layer_has_are_refused_by_name(sizes, named):
    with pytest.raises(TenonError, match=f"PackedLinear.*{named}"):
        PackedLinear(*sizes)


@pytest.mark.parametrize("layer", [None, nn.ReLU(), nn.Conv1d(2, 2, 1)], ids=str)
def test_only_linear_layers_are_packed(layer):
    with pytest.raises(TenonError, match=r"PackedLinear.of: layer must be an nn.Linear, not \w+"):
        PackedLinear.of(layer)


def test_a_layer_wider_than_columns_reach_is_refused_as_they_would_wrap_around():
    with pytest.raises(TenonError, match="in_features must be a whole number from 0 to 65536, got 65537"):
        PackedLinear.of(nn.Linear(65_537, 1))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (7,), (2, 300), (6, 5)], ids=str)
@pytest.mark.parametrize("run", [lambda layer: layer, tenon.compile], ids=["eager", "compiled"])
def test_an_input_of_another_width_is_refused_with_both_widths(shape, run):
    layer = PackedLinear.of(nn.Linear(6, 4))

    with pytest.raises(ShapeError, match=r"in_features = 6 elements, but its shape is \["):
        run(layer)(tenon.ones(shape))
    with pytest.raises(TypeError, match="input must be a tensor, not None"):
        layer(None)
    assert layer(tenon.ones(2, 6)).shape == (2, 4)
