"""Static int8: uint8 activations, folded layers, errors of calibration, and accuracy on digits."""

import copy
import importlib
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import QuantizationError
from tenon.quantization import StaticConv, StaticLinear, StaticMaxPool, load
from tenon.quantization.static import Int8
from tenon.quantization.static_layers import Folded
from tenon_recipes import digits


class Residual(nn.Module):
    """A convolution whose result is read twice, once by an op."""

    def __init__(self, inplace):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.act, self.head = nn.BatchNorm2d(8), nn.ReLU(), nn.Linear(8, 4)
        self.inplace = inplace

    def forward(self, x):
        x = self.first(x)
        y = self.act(self.norm(self.second(x)))
        if self.inplace:
            y += x
        else:
            y = y + x
        return self.head(y.mean((2, 3)))


def network():
    tenon.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5),
        nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 9, 12), nn.ReLU(), nn.Linear(12, 5),
    )  # fmt: skip


def batches(count=3, shape=(4, 3, 16, 16)):
    tenon.manual_seed(1)
    return [tenon.randn(*shape) for _ in range(count)]


def result(model, x):
    with tenon.no_grad():
        return model.eval()(x).numpy()


def trained(model):
    """With statistics of batch norms that are not those of a new one."""
    model.train()
    for x in batches():
        model(x)
    return model.eval()


@pytest.mark.parametrize(
    ("observer", "most"),
    [
        ("MinMax", 0.05),
        ("MovingAverage", 0.05),
        ("Histogram", 0.05),
        pytest.param("Entropy", 0.1, marks=pytest.mark.slow),
    ],
)
def test_results_stay_near_and_the_model_as_it_was(observer, most):
    model = trained(network())
    before, x = copy.deepcopy(model.state_dict()), batches()[0]

    small, receipt = tenon.quantize(model, Int8(observer), batches())

    expected = result(model, x)
    assert np.abs(result(small, x) - expected).max() < most * np.abs(expected).max()
    assert receipt.total.bytes.ratio < 0.6 and receipt.output_change < 0.05
    assert all(tenon.equal(before[k], v) for k, v in model.state_dict().items())


def test_steps_flow_from_layer_to_layer_and_the_rest_is_folded():
    small = tenon.quantize(trained(network()), "int8", batches()).model

    assert [type(layer) for layer in small] == [
        StaticConv, Folded, Folded, StaticMaxPool, nn.Dropout, StaticConv, Folded, nn.Flatten, StaticLinear, Folded,
        StaticLinear,
    ]  # fmt: skip
    given = []
    for place in (3, 5, 7, 8, 10):
        small[place].register_forward_pre_hook(lambda module, args: given.append(args[0].dtype))
    made = small(batches()[0])
    assert set(given) == {tenon.uint8} and made.dtype is tenon.float32


@pytest.mark.parametrize("inplace", [False, True], ids=["sum", "sum in place"])
def test_what_an_op_reads_stays_float(inplace):
    tenon.manual_seed(0)
    model, x = trained(Residual(inplace)), batches()[0]

    small = tenon.quantize(model, "int8", batches()).model

    assert small.first.steps["out_step"] is None and small.second.steps["out_step"] is None
    assert small.second.steps["relu"] and type(small.norm) is type(small.act) is Folded
    expected = result(model, x)
    assert np.abs(result(small, x) - expected).max() < 0.05 * np.abs(expected).max()


class Rectified(nn.Module):
    """Rectifiers in all forms: one module for two layers, functions, one that ends at 6."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding="same"), nn.Conv2d(8, 8, 3, padding=1)
        self.third, self.fourth = nn.Conv2d(8, 8, 3, padding="valid"), nn.Conv2d(8, 4, 1)
        self.act, self.six, self.head = nn.ReLU(), nn.ReLU6(), nn.Linear(4 * 36, 5)

    def forward(self, x):
        x = self.act(self.second(self.act(self.first(x))))
        x = self.six(self.third(8 * nn.functional.max_pool2d(x, 2)))
        x = nn.functional.relu(self.fourth(x))
        return self.head(x.flatten(1))


def test_rectifiers_that_are_shared_or_functions_let_steps_pass_and_6_is_a_limit():
    tenon.manual_seed(0)
    model, x = Rectified().eval(), batches()[0]
    assert (model.third(tenon.randn(2, 8, 8, 8) * 8) > 6).any()

    small = tenon.quantize(model, "int8", batches()).model

    steps = {name: getattr(small, name).steps for name in ("first", "second", "third", "fourth", "head")}
    given = {name: of["out_step"] is not None for name, of in steps.items()}
    assert given == {"first": True, "second": False, "third": True, "fourth": True, "head": False}
    assert steps["first"]["relu"] and steps["fourth"]["relu"] and steps["third"]["out_step"] <= 6 / 255
    assert type(small.act) is nn.ReLU and type(small.six) is Folded
    expected = result(model, x)
    assert np.abs(result(small, x) - expected).max() < 0.05 * np.abs(expected).max()
    np.testing.assert_allclose(result(tenon.compile(small), x), result(small, x), rtol=1e-5, atol=1e-5)


class InPlace(nn.Module):
    """Functions that write into their input, and a pool that is a function."""

    def __init__(self, branch=False):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(32, 5)
        self.branch = branch

    def forward(self, x):
        x = self.first(x)
        made = nn.functional.relu(x, inplace=not self.branch)
        x = nn.functional.max_pool2d(x if self.branch else made, 2, padding=1)
        return self.head(tenon.relu_(self.second(x))[:, :, 1:3, :2].flatten(1))


@pytest.mark.parametrize("branch", [False, True], ids=["in place", "beside"])
def test_steps_pass_rectifiers_in_place_and_pools_that_are_functions(branch):
    tenon.manual_seed(0)
    model, x = InPlace(branch).eval(), batches()[0]

    small = tenon.quantize(model, "int8", batches()).model

    steps = {name: getattr(small, name).steps for name in ("first", "second", "head")}
    given = {name: (of["out_step"] is not None, of["relu"]) for name, of in steps.items()}
    # Where the rectifier's own result is not read, nothing may be rectified.
    assert given["first"] == ((True, True) if not branch else (False, False))
    assert given["second"] == (True, True)
    expected = result(model, x)
    assert np.abs(result(small, x) - expected).max() < 0.05 * np.abs(expected).max()
    np.testing.assert_allclose(result(tenon.compile(small), x), result(small, x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_every_norm_of_a_residual_network_is_folded(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples" / "models")
    resnet = importlib.import_module("resnet")
    tenon.manual_seed(0)
    model = trained(resnet.ResNet((1, 2, 1, 1), width=8, classes=5))
    x = batches()[0]

    small = tenon.quantize(model, "int8", batches()).model

    kinds = {type(module) for module in small.modules()}
    assert kinds.isdisjoint({nn.Conv2d, nn.Linear, nn.BatchNorm2d}) and Folded in kinds
    blocks = [*small.layer1, *small.layer2]
    assert all(b.conv1.steps["out_step"] is not None and b.conv1.steps["relu"] for b in blocks)
    expected = result(model, x)
    assert np.abs(result(small, x) - expected).max() < 0.05 * np.abs(expected).max()


class Written(nn.Module):
    """A result of which one channel is overwritten before the next layer reads it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)

    def forward(self, x):
        x = self.first(x)
        x[:, 0] = 100.0
        return self.second(x)


def test_what_is_written_stays_float():
    tenon.manual_seed(0)
    model, x = Written().eval(), batches()[0]

    small = tenon.quantize(model, "int8", batches()).model

    assert small.first.steps["out_step"] is None
    expected = result(model, x)
    assert np.abs(result(small, x) - expected).max() < 0.05 * np.abs(expected).max()


class Detached(nn.Module):
    """A result that an op reads through a detached tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = self.first(x)
        aside = x.detach()
        return self.second(x) + aside.mean()


def test_what_is_read_detached_stays_float():
    tenon.manual_seed(0)
    model, x = Detached(), tenon.randn(5, 6)

    small = tenon.quantize(model, "int8", [x]).model

    assert small.first.steps["out_step"] is None
    np.testing.assert_allclose(result(small, x), result(model, x), atol=0.1)


def test_a_layer_that_runs_twice_takes_and_gives_floats():
    layer = nn.Linear(6, 6)
    model, x = nn.Sequential(layer, nn.ReLU(), layer), tenon.randn(5, 6)

    small = tenon.quantize(model, "int8", [x]).model

    assert type(small[0]) is StaticLinear and small[0] is small[2] and type(small[1]) is nn.ReLU
    np.testing.assert_allclose(result(small, x), result(model, x), atol=0.1)


def test_a_norm_over_another_axis_is_not_folded():
    model, x = trained_rows(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(4)))

    small = tenon.quantize(model, "int8", [x]).model

    assert type(small[1]) is nn.BatchNorm1d
    np.testing.assert_allclose(result(small, x), result(model, x), atol=0.1)


def test_a_norm_after_a_product_is_folded():
    model, x = trained_rows(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)), (7, 6))

    small = tenon.quantize(model, "int8", [x]).model

    assert type(small[1]) is Folded
    np.testing.assert_allclose(result(small, x), result(model, x), atol=0.1)


def trained_rows(model, shape=(7, 4, 6)):
    tenon.manual_seed(0)
    x = tenon.randn(*shape)
    for _ in range(3):
        model(x + 1)
    return model.eval(), x


def test_a_file_gives_the_same_model_back(tmp_path):
    small, x = tenon.quantize(trained(network()), "int8", batches()).model, batches()[0]
    tenon.save(small.state_dict(), tmp_path / "model.safetensors")

    loaded = load(network(), tenon.load(tmp_path / "model.safetensors"))

    np.testing.assert_array_equal(result(loaded, x), result(small, x))
    np.testing.assert_array_equal(result(copy.deepcopy(small), x), result(small, x))
    np.testing.assert_allclose(result(tenon.compile(small), x), result(small, x), rtol=1e-5, atol=1e-6)


def test_a_state_dict_that_does_not_fit_changes_nothing():
    small, x = tenon.quantize(trained(network()), "int8", batches()).model, batches()[0]
    expected, state = result(small, x), dict(small.state_dict())
    state["10.weight"] = tenon.zeros(2, 2, dtype=tenon.int8)

    with pytest.raises(tenon.errors.StateDictError, match=r"10\.weight"):
        small.load_state_dict(state)

    np.testing.assert_array_equal(result(small, x), expected)


@pytest.mark.slow
def test_digits_are_known_as_well_as_before():
    data = digits.load()
    (images, labels), test = data.train.tensors, data.test.tensors
    tenon.manual_seed(0)
    model = digits.DigitsNet(16)
    optimizer = tenon.optim.AdamW(model.parameters(), lr=6e-3)
    for _ in range(4):
        for rows in tenon.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()

    receipt = tenon.quantize(model, "int8", images[:256].split(64), data=[test]).receipt

    assert receipt.accuracy.before > 0.94 and receipt.accuracy.after >= receipt.accuracy.before - 0.005


@pytest.mark.parametrize(
    ("calibration", "words"),
    [
        (None, "int8 needs calibration data"),
        ([], "int8 needs calibration data"),
        ([tenon.randn(2, 3, 16, 16), tenon.randn(2, 4, 16, 16)], r"calibration\[1\] cannot be run .* at '0'"),
        ([tenon.randn(2, 3, 20, 20)], r"calibration\[0\] cannot be run .* at '8'"),
        ([tenon.full((2, 3, 16, 16), float("nan"))], "the values at '0' in calibration are between nan"),
        ([tenon.full((2, 3, 16, 16), float("inf"))], "the values at '0' in calibration are between .* inf"),
        ([tenon.ones(0, 3, 16, 16)], "no number reached '0'"),
    ],
    ids=["none", "empty", "channels", "size", "nan", "inf", "no images"],
)
def test_calibration_that_does_not_fit_is_named(calibration, words):
    model = network().eval()
    before = copy.deepcopy(model.state_dict())

    with pytest.raises(QuantizationError, match=words):
        tenon.quantize(model, "int8", calibration)

    assert all(tenon.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_what_is_called_by_name_or_once_with_nothing_is_calibrated():
    class Named(nn.Sequential):
        def forward(self, x):
            return self[2](input=self[1](input=self[0](input=x)).flatten(1))

    model, x = Named(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(64, 2)).eval(), tenon.randn(2, 3, 6, 6)

    small = tenon.quantize(model, "int8", [x, x[:0]]).model

    assert isinstance(small[0], StaticConv) and isinstance(small[2], StaticLinear)
    np.testing.assert_allclose(result(small, x), result(model, x), atol=0.05)
    with pytest.raises(
        QuantizationError, match=r"'0' has one scale, but its observer returns limits of shape \[2\]"
    ):
        tenon.quantize(model, Int8(observer="PerChannelMinMax"), [x])


def test_hooks_stay_and_find_and_leave_floats():
    tenon.manual_seed(0)
    seen = []
    inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU())
    model = nn.Sequential(inner, nn.Conv2d(4, 2, 3)).eval()
    inner[0].register_forward_hook(lambda module, args, output: output * 3)
    inner[2].register_forward_pre_hook(
        lambda module, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True
    )
    inner.register_forward_hook(lambda module, args, output: seen.append(output))
    x = tenon.randn(2, 3, 9, 9)

    small = tenon.quantize(model, "int8", [x]).model

    seen.clear()
    np.testing.assert_allclose(result(small, x), result(model, x), atol=0.05)
    assert type(small[0][2]) is StaticConv
    np.testing.assert_allclose(seen[0].numpy(), seen[1].numpy(), atol=0.05)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_norm_after_a_transposed_convolution_is_folded(groups):
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 6, 3, groups=groups), nn.BatchNorm2d(6))
    for x in batches():
        model(x)

    small, receipt = tenon.quantize(model.eval(), "int8", [x])

    assert [type(layer) for layer in small] == [StaticConv, nn.ConvTranspose2d, Folded]
    assert receipt["2"].kind == "BatchNorm2d -> Folded" and receipt["2"].parameters.after == 0
    np.testing.assert_allclose(result(small, x), result(model, x), atol=0.05)


@pytest.mark.slow
def test_a_model_that_was_compacted_before_comes_back_from_its_file(tmp_path):
    model, x = trained(network()), batches()[0]
    nn.utils.prune.ln_structured(model[5], "weight", 0.5, 2, 0)
    tenon.prune.compact(model, x)
    small = tenon.quantize(model, "int8", batches()).model
    tenon.save(small.state_dict(), tmp_path / "model.safetensors")

    loaded = tenon.compress.load(network(), tenon.load(tmp_path / "model.safetensors"))

    assert small[5].weight.shape[0] == 8
    np.testing.assert_array_equal(result(loaded, x), result(small, x))
