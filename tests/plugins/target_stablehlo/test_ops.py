"""Each form against tenon, by XLA on the processor: the cases of the target onnx, gradients, other dtypes."""

import pytest
from tests.plugins.target_onnx.programs import each
from tests.plugins.target_onnx.test_ops import CASES, LAYERS, X
from tests.plugins.target_stablehlo.programs import check, needs_jax

import tenon as t
from tenon import nn
from tenon.export import capture
from tenon.nn import functional as F

pytestmark = [needs_jax, pytest.mark.slow]


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


@pytest.mark.parametrize("name", [name for name in CASES if name != "determinant"])
def test_ops_equal_tenon(name, tmp_path):
    function, examples = CASES[name]

    check(tmp_path, function, *examples())


@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_tenon(name, tmp_path):
    shape, layers = LAYERS[name]

    check(tmp_path, each(*layers()), t.randn(shape))


@pytest.mark.parametrize("dtype", [t.float64, t.float16, t.bfloat16], ids=str)
def test_other_floats(dtype, tmp_path):
    functions = [
        t.exp, t.tanh, t.relu, lambda a: a * 2 + 1, lambda a: a.sum(1), lambda a: a / (a.abs() + 1), lambda a: a.transpose(0, 1),
        lambda a: a.float(), lambda a: a[:, 1], lambda a: t.where(a > 0, a, -a), lambda a: t.maximum(a, a.flip(0)), lambda a: a.amax(2),
        lambda a: a.sigmoid(), lambda a: a.clamp(-0.5, 0.5), lambda a: a.mean(2), t.floor, t.erf, t.erfc, lambda a: a.argmax(1),
    ]  # fmt: skip

    def function(x):
        return each(*functions)(x.to(dtype))

    check(tmp_path, function, t.randn(X), tolerance=0.02 if dtype is not t.float64 else 1e-9)


def test_long_sequences_are_loops(tmp_path):
    layers = [
        nn.LSTM(4, 8, num_layers=2, bidirectional=True), nn.LSTM(4, 8, proj_size=3), nn.LSTM(4, 6, bias=False), nn.GRU(4, 7, bidirectional=True),
        nn.GRU(4, 3, bias=False), nn.RNN(4, 5, nonlinearity="relu"), nn.RNN(4, 5),
    ]  # fmt: skip

    check(tmp_path, each(*layers), t.randn(40, 2, 4))

    text = (tmp_path / "model.mlir").read_text()
    assert text.count('"stablehlo.while"') == 11 and len(text.splitlines()) < 800


def gradients(function, *arguments):
    leaves = [a.detach().requires_grad_() for a in arguments]
    out = function(*leaves)
    weights = t.arange(float(out.numel())).reshape(out.shape).sin()
    return t.autograd.grad((out * weights).sum(), leaves)


#: Functions whose gradients are other ops than they.
DIFFERENTIABLE = {
    "convolution": (
        [
            lambda a, w: F.conv2d(a, w, stride=2, padding=1), lambda a, w: F.conv2d(a, w, dilation=2),
            lambda a, w: F.conv2d(a, w[:, :2], groups=2, stride=(1, 2)),
            lambda a, w: F.conv2d(a, w[:4, :1], groups=4, padding=1, stride=3),
            lambda a, w: F.conv_transpose2d(a, w[:4], stride=2, padding=1, output_padding=1),
            lambda a, w: F.conv_transpose2d(a, w[:4], groups=2, stride=2),
        ],
        lambda: [t.randn(2, 4, 9, 11), t.randn(6, 4, 3, 3)],
    ),
    "pooling": (
        [
            lambda a: F.max_pool2d(a, 3, 2, 1), lambda a: F.max_pool2d(a, 2), lambda a: F.max_pool2d(a, 2, ceil_mode=True),
            lambda a: F.avg_pool2d(a, 3, 2, 1), lambda a: F.avg_pool2d(a, 2, count_include_pad=False, padding=1),
            lambda a: F.avg_pool2d(a, 2, ceil_mode=True), lambda a: F.adaptive_avg_pool2d(a, (3, 4)), lambda a: F.unfold(a, 3, padding=1),
            lambda a: F.fold(F.unfold(a, 3), (9, 11), 3), lambda a: F.interpolate(a, scale_factor=1.7, mode="bilinear"),
            lambda a: F.interpolate(a, size=(4, 5)), lambda a: F.pad(a, (1, 2, 0, 1), mode="reflect"), lambda a: a.unfold(2, 3, 2),
        ],
        lambda: [t.randn(2, 4, 9, 11)],
    ),
    "rows": (
        [
            lambda a: F.softmax(a, 1), lambda a: F.log_softmax(a, 0), lambda a: F.layer_norm(a, (7,)), lambda a: F.group_norm(a, 5),
            F.gelu, lambda a: F.gelu(a, approximate="tanh"), F.silu, F.mish, F.softplus, F.elu, F.leaky_relu, F.hardswish, F.relu6,
            lambda a: F.batch_norm(a, None, None, training=True), lambda a: a.cumsum(1), lambda a: a.prod(1), lambda a: a.amax(1),
            lambda a: a[:, 1:, ::2], lambda a: a[:, t.tensor([0, 3, 3])], lambda a: t.cat([a, a * 2], 1), lambda a: a.norm(dim=1),
            lambda a: a.var(1), lambda a: a.transpose(0, 1)[1], lambda a: t.logsumexp(a, 2), lambda a: a.gather(1, t.zeros(3, 1, 7).long()),
            lambda a: F.scaled_dot_product_attention(a, a * 2, a + 1), lambda a: a.clamp(-0.5, 0.5), lambda a: a.expand(2, 3, 5, 7) * 2,
        ],
        lambda: [t.randn(X)],
    ),
    "tables": (
        [
            lambda w: F.embedding(t.tensor([[1, 4], [1, 0]]), w), lambda w: F.embedding(t.tensor([1, 4, 1]), w, padding_idx=4),
            lambda w: F.embedding(t.tensor([1, 4, 1]), w, scale_grad_by_freq=True),
            lambda w: F.cross_entropy(w, t.tensor([0, 2, 5, -100, 1])), lambda w: F.cross_entropy(w, t.tensor([0, 2, 5, 3, 1]), label_smoothing=0.2),
            lambda w: F.nll_loss(w, t.tensor([0, 2, 5, 3, 1]), weight=t.arange(1.0, 7.0), reduction="none"),
        ],
        lambda: [t.randn(5, 6)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_equal_tenon(name, tmp_path):
    functions, examples = DIFFERENTIABLE[name]

    def function(*arguments):
        return [g for each in functions for g in gradients(each, *arguments)]

    check(tmp_path, capture(function, *examples(), train=True), *examples())


@pytest.mark.parametrize("dtype", [t.float16, t.bfloat16], ids=str)
def test_numbers_beside_short_floats_have_the_digits_of_eager_ops(dtype, tmp_path):
    def function(x):
        x = x.to(dtype)
        return x * 0.3, x * t.tensor(0.3), 0.3 / x, x + 0.3, 0.3 - x, x * 257  # XLA divides by no constant

    check(tmp_path, function, t.linspace(0.1, 8, 200), tolerance=1e-7)
