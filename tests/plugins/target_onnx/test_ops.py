"""Each form against tenon, by onnxruntime: odd shapes, broadcast and moved operands, empty arrays, many dtypes.

The functions of a test are outputs of one model, as each session costs more than most of them.
"""

import pytest
from tests.plugins.target_onnx.programs import check, each, needs_runtime

import tenon as t
from tenon import nn
from tenon.nn import functional as F

pytestmark = [needs_runtime, pytest.mark.slow]
X, Y = (3, 5, 7), (3, 5, 7)


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


def method(name):
    return lambda x: getattr(t, name)(x)


def twice(layer, count=3):
    return lambda x: layer(*(x, x * 2, x)[:count])


UNARY = (
    "exp exp2 tanh sigmoid erf erfc relu neg abs sign floor ceil trunc round sin cos square expm1 isnan isinf"
    " isfinite signbit sinh cosh asinh atan tan sinc"
)
POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal atan asinh"
CASES = {
    "unary": (each(*map(method, UNARY.split())), lambda: [t.randn(X)]),
    "positive": (each(*map(method, POSITIVE.split())), lambda: [t.rand(X) + 0.1]),
    "narrow": (each(t.acos, t.asin, t.atanh, lambda a: t.acosh(a + 2), t.log1p, t.expm1), lambda: [t.rand(X) * 1.9 - 0.95]),
    "near_zero": (
        each(lambda a: t.expm1(a) * 1e8, lambda a: t.log1p(a) * 1e8), lambda: [t.tensor([1e-8, -1e-8, 1e-12, 0.0, 1e-4])],
    ),
    "large": (
        each(*map(method, ["exp", "tanh", "sigmoid", "erf", "expm1", "relu", "isnan", "isinf", "isfinite", "signbit", "sign"])),
        lambda: [t.tensor([-200.0, -88.0, -20.0, -1e-8, 0.0, 1e-8, 20.0, 80.0, float("-inf"), float("inf"), float("nan")])],
    ),
    "log_edges": (each(t.log, t.log1p), lambda: [t.tensor([0.0, -1.0, 1e-30, 1.0, float("inf"), float("nan")])]),
    "angles": (
        each(t.atan2, t.copysign, t.hypot),
        lambda: [
            t.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1.5]), t.tensor([1.0, 1.0, -1.0, -1.0, 0.0, 0.0, -3.0, -3.0, 4.0]),
        ],
    ),
    "with_nan": (
        each(t.maximum, t.minimum, t.fmax, t.fmin, lambda a, b: a == b, lambda a, b: a < b, lambda a, b: t.nan_to_num(a)),
        lambda: [t.tensor([1.0, float("nan"), 3.0, float("inf")]), t.tensor([2.0, 2.0, float("nan"), float("-inf")])],
    ),
    "binary": (
        each(
            lambda a, b: a + b, lambda a, b: a * b - b, lambda a, b: a / (b.abs() + 1), t.maximum, t.atan2, t.hypot,
            lambda a, b: t.where(a > b, a, b * 2), lambda a, b: a.transpose(0, 2) + b.transpose(0, 2),
            lambda a, b: a[:, :1] + b[..., :1], lambda a, b: a.clamp(-0.5, 0.5) + b.clamp(min=0), t.logaddexp,
            t.remainder, t.fmod, lambda a, b: a**2 + b**3, lambda a, b: (a > 0) & (b < 0), lambda a, b: (a > 0) ^ (b < 0),
            lambda a, b: t.pow(a.abs() + 0.1, b), lambda a, b: a.to(t.float64) * 2, lambda a, b: a.long() * b.long(),
            lambda a, b: (a * 3).int() + 1, lambda a, b: a[1, 2, 3] * b, lambda a, b: t.clamp(a, b - 0.1, b + 0.1),
            lambda a, b: t.floor_divide(a, b), lambda a, b: a >= b, lambda a, b: a != b, lambda a, b: t.round(a, decimals=2),
            lambda a, b: t.logical_or(a > 0, b), lambda a, b: t.xlogy(a, b.abs()), lambda a, b: t.where(a > 0, a > b, b > 1),
            lambda a, b: t.lerp(a, b, 0.3), lambda a, b: t.addcmul(a, a, b, value=0.5), lambda a, b: t.heaviside(a, b),
        ),
        lambda: [t.randn(X), t.randn(Y)],
    ),
    "reductions": (
        each(
            lambda a: a.sum(), lambda a: a.sum(1), lambda a: a.sum((0, 2)), lambda a: a.mean((0, 2), keepdim=True),
            lambda a: a.amax(1), lambda a: a.amin((0, 1)), lambda a: a.argmax(1), lambda a: a.argmin(),
            lambda a: a.cumsum(1), lambda a: a.transpose(0, 1).sum(1), lambda a: (a > 0).any(1), lambda a: a.cumprod(1),
            lambda a: (a > 0).all(), lambda a: a.var(1), lambda a: a.std((0, 2)), lambda a: t.logsumexp(a, 1),
            lambda a: a.prod(2), lambda a: a.norm(dim=1), lambda a: a.double().sum(0), lambda a: a.max(1), lambda a: a.min(),
            lambda a: (a > 0).sum(1), lambda a: a.argmax(-1, keepdim=True), lambda a: a.long().sum(0),
        ),
        lambda: [t.randn(X)],
    ),
    "movement": (
        each(
            lambda a: a.permute(2, 0, 1), lambda a: a.flip(1), lambda a: a.roll(2, 1), lambda a: t.cat([a, a * 2], 1),
            lambda a: t.stack([a, a], 2), lambda a: F.pad(a, (1, 2, 0, 1)), lambda a: F.pad(a > 0, (1, 0), value=True),
            lambda a: a.reshape(15, 7).t().reshape(7, 3, 5), lambda a: a[1:, ::2, [0, 3, -1]], t.tril,
            lambda a: a.unsqueeze(1).expand(3, 4, 5, 7), lambda a: a[:, None, 2], lambda a: a[..., -1], lambda a: a[1, :, 2:5],
            lambda a: F.pad(a, (2, 2), mode="reflect"), lambda a: a.unbind(1)[2], lambda a: a.chunk(2, 2)[1] * 1,
            lambda a: a.repeat(1, 2, 1), lambda a: F.pad(a, (-1, 1)), lambda a: a.diagonal(0, 1, 2), lambda a: a.roll((1, -3), (0, 2)),
            lambda a: t.triu(a, 1), lambda a: a, lambda a: a.unfold(2, 3, 2),
            lambda a: t.diag_embed(a), lambda a: a.split((2, 3), 1)[1], lambda a: F.pad(a, (1, 1), value=float("-inf")),
            lambda a: a.clone().transpose(0, 1).contiguous(), lambda a: t.zeros_like(a) + 1, lambda a: a.new_full((2, 3), 4.0),
            lambda a: (a > 0).tril(), lambda a: a.squeeze(), lambda a: a.swapaxes(0, 2).flatten(1), lambda a: t.full_like(a, 2),
        ),
        lambda: [t.randn(X)],
    ),
    "rows": (
        each(
            lambda a: F.softmax(a, -1), lambda a: F.softmax(a, 1), lambda a: F.log_softmax(a, 0),
            lambda a: F.layer_norm(a, (7,)), lambda a: F.layer_norm(a, (5, 7)), lambda a: F.rms_norm(a, (7,)),
            lambda a: F.group_norm(a, 5), lambda a: F.normalize(a, dim=1), F.gelu, F.selu, F.celu, F.hardsigmoid, F.softsign,
            lambda a: F.gelu(a, approximate="tanh"), F.elu, F.mish, F.leaky_relu, F.hardtanh, F.logsigmoid, F.silu, F.relu6,
            lambda a: F.glu(a[..., :6]), F.softplus, F.hardswish, F.softshrink, F.hardshrink, F.tanhshrink,
            lambda a: F.softplus(a, beta=2), lambda a: F.threshold(a, 0.1, 3.0), lambda a: F.elu(a, alpha=0.5),
            lambda a: F.instance_norm(a), lambda a: F.celu(a, alpha=2.0),
        ),
        lambda: [t.randn(X)],
    ),
    "products": (
        each(
            lambda a, b: a @ b, lambda a, b: a[0] @ b, lambda a, b: a @ b[0], lambda a, b: a[0, 0] @ b[0, 0],
            lambda a, b: a[0, 0, 0] @ b[0, 0], lambda a, b: a @ b[0, 0, :, 0], lambda a, b: a[:, :1] @ b,
            lambda a, b: a.double() @ b.double(), lambda a, b: a.long() @ b.long(), lambda a, b: t.dot(a[0, 0, 0], a[0, 0, 1]),
            lambda a, b: t.einsum("abij,abjk->aik", a, b), lambda a, b: F.linear(a, b[0, 0].t()), lambda a, b: t.outer(a[0, 0, 0], b[0, 0, 0]),
            lambda a, b: t.addmm(b[0, 0, :5], a[0, 0], b[0, 0]), lambda a, b: t.baddbmm(b[0, :, :5], a[0], b[0]),
            lambda a, b: F.linear(a[0, 0], b[0, 0].t(), b[0, 0, 0]),
        ),
        lambda: [t.randn(2, 3, 5, 7), t.randn(2, 3, 7, 4)],
    ),
    "determinant": (each(t.det), lambda: [t.randn(3, 3)]),
    "empty": (
        each(
            lambda a: a + 1, lambda a: a.sum(0), t.relu, lambda a: t.cat([a, t.ones(2, 3)], 0), lambda a: a.sum(), lambda a: a.reshape(3, 0),
            lambda a: a[:, 1],
        ),
        lambda: [t.randn(0, 3)],
    ),
    "no_axes": (
        each(
            lambda a: a + 1, t.sum, lambda a: a.relu() * a, lambda a: a.reshape(1, 1), lambda a: a.expand(3, 2), t.argmax,
            lambda a: a.max(), lambda a: t.stack([a, a]),
        ),
        lambda: [t.randn(())],
    ),
    "integers": (
        each(
            lambda i: F.embedding(i, t.arange(30.0).reshape(5, 6)), lambda i: t.arange(30.0).reshape(5, 6)[i],
            lambda i: t.arange(30.0).reshape(5, 6)[:, i], lambda i: t.gather(t.arange(30.0).reshape(5, 6), 1, i),
            lambda i: i + 1, lambda i: i * i - i, lambda i: i == 3, lambda i: i.float() * 0.5, lambda i: i.sum(1), lambda i: i / 3,
            lambda i: (i > 2).long().sum(), lambda i: t.where(i > 2, i, -i), lambda i: i * 4611686018427387904, lambda i: i * 0.5,
            lambda i: (i - 2) // 3, lambda i: (i - 2) % 3, lambda i: t.fmod(i - 2, 3), lambda i: i & 5, lambda i: i | 8, lambda i: ~i, lambda i: i << 2,
            lambda i: (i - 3) >> 1, lambda i: i.to(t.int8) * 60, lambda i: i.to(t.uint8) - 3, lambda i: t.ops.one_hot(i, classes=5), lambda i: i.clamp(1, 3),
            lambda i: i.max(1), lambda i: i.bool(), lambda i: -i, lambda i: i.abs(), lambda i: i.sign(), lambda i: i.to(t.int16).sum(),
            lambda i: i.float().sort(1), lambda i: i.argsort(1, descending=True), lambda i: t.isfinite(i),
        ),
        lambda: [t.tensor([[1, 4, 2], [0, 3, 3]])],
    ),
    "indexing": (
        each(
            lambda a, i: a[:, i, i], lambda a, i: a[i, :, i], lambda a, i: a[i[:, None], :, i], lambda a, i: a[:, :, i], lambda a, i: a[i, 1],
            lambda a, i: t.index_select(a, 2, i), lambda a, i: t.take_along_dim(a, i[None, :, None], 1), lambda a, i: t.gather(a, 0, i[:, None, None]),
            lambda a, i: t.scatter(t.zeros(3, 5, 7), 1, i[None, :, None], a), lambda a, i: t.scatter_add(t.ones(3, 5, 7), 0, i[:, None, None], a),
            lambda a, i: a.index_add(1, i, a[:, :3]), lambda a, i: a.index_copy(2, i, a[:, :, :3] * 2), lambda a, i: a.index_put((i, i), t.tensor(9.0)),
            lambda a, i: a.index_put((i,), a[:3] * 0.5, accumulate=True), lambda a, i: a.select_scatter(a[0] * 2, 0, 1),
            lambda a, i: a.slice_scatter(a[:, 1:3] * 3, 1, 0, 4, 2), lambda a, i: a.masked_fill(a > 0, 5.0), lambda a, i: a.index_fill(1, i, -1.0),
            lambda a, i: t.scatter_reduce(a, 1, i[None, :, None].expand(3, 3, 7), a, "amax"),
            lambda a, i: t.scatter_reduce(a, 1, i[None, :, None].expand(3, 3, 7), a, "prod"),
        ),
        lambda: [t.randn(X), t.tensor([1, 0, 2])],
    ),
    "losses": (
        each(
            lambda a, y: F.cross_entropy(a, y), lambda a, y: F.cross_entropy(a, y, reduction="none", label_smoothing=0.1),
            lambda a, y: F.nll_loss(F.log_softmax(a, 1), y, ignore_index=2, reduction="sum"), lambda a, y: F.mse_loss(a, a * 0.5),
            lambda a, y: F.cross_entropy(a, y, weight=t.arange(1.0, 8.0)), lambda a, y: F.smooth_l1_loss(a, a * 2), lambda a, y: F.l1_loss(a, -a),
            lambda a, y: F.binary_cross_entropy_with_logits(a, a.sigmoid()), lambda a, y: F.kl_div(F.log_softmax(a, 1), F.softmax(-a, 1), reduction="sum"),
            lambda a, y: F.huber_loss(a, a * 3), lambda a, y: F.cosine_similarity(a, a + 1), lambda a, y: t.cdist(a, a + 1),
        ),
        lambda: [t.randn(5, 7), t.tensor([0, 2, 6, 1, 2])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ops_equal_tenon(name, tmp_path):
    function, examples = CASES[name]

    check(tmp_path, function, *examples())


LAYERS = {
    "convolution": (
        (2, 4, 9, 11),
        lambda: [
            nn.Conv2d(4, 6, 3, padding=1, stride=2), nn.Conv2d(4, 8, 3, dilation=2),
            nn.Conv2d(4, 8, (1, 3), groups=2, padding=(0, 1)), nn.Conv2d(4, 4, 3, groups=4, padding=1),
            nn.Conv2d(4, 8, 5, groups=4, stride=2, padding=2), nn.Conv2d(4, 7, 1), nn.Conv2d(4, 3, 3, padding=4),
            nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
            nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), nn.ConvTranspose2d(4, 4, 3, dilation=2, bias=False),
            nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 13, 3, padding="same", bias=False),
        ],
    ),
    "pooling": (
        (2, 4, 9, 11),
        lambda: [
            nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(2, count_include_pad=False, padding=1),
            nn.AdaptiveAvgPool2d((3, 4)), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(2), nn.MaxPool2d(2, dilation=2),
            nn.AdaptiveAvgPool2d((3, 11)), nn.AvgPool2d(3, divisor_override=5), nn.MaxPool2d(3, 2, 1, return_indices=True),
            nn.AvgPool2d(2, ceil_mode=True), nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.LPPool2d(2, 2),
            nn.MaxPool2d(3, 3, 1, ceil_mode=True, return_indices=True), nn.AdaptiveAvgPool2d(1),
        ],
    ),
    "resampling": (
        (2, 4, 9, 11),
        lambda: [
            nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(2), nn.PixelUnshuffle(1),
            nn.Upsample(size=(5, 17), mode="bilinear", align_corners=True), nn.Upsample(scale_factor=1.7, mode="bilinear"),
            nn.Upsample(size=(7, 20), mode="bicubic"), nn.Upsample(size=(4, 5)), nn.ReflectionPad2d((1, 2, 0, 3)), nn.ReplicationPad2d(2),
            nn.CircularPad2d(1), nn.Unfold(3, padding=1, stride=2), nn.Upsample(size=(5, 6), mode="nearest-exact"), nn.ZeroPad2d((1, 0, 2, 1)),
            lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True), nn.ChannelShuffle(2),
            lambda x: F.fold(F.unfold(x, 3), (9, 11), 3), nn.BatchNorm2d(4).eval(), nn.GroupNorm(2, 4), nn.LocalResponseNorm(3),
        ],
    ),
    "one_axis": (
        (2, 3, 17),
        lambda: [
            nn.Conv1d(3, 5, 3, padding=1), nn.Conv1d(3, 6, 4, groups=3, stride=3), nn.MaxPool1d(2), nn.BatchNorm1d(3).eval(),
            nn.ConvTranspose1d(3, 2, 4, 2), nn.AvgPool1d(3, 2), nn.Upsample(scale_factor=3, mode="linear"), nn.AdaptiveMaxPool1d(1),
        ],
    ),
    "three_axes": (
        (2, 2, 5, 6, 7),
        lambda: [
            nn.Conv3d(2, 5, 3, padding=1, stride=(1, 2, 1)), nn.MaxPool3d(2), nn.ConvTranspose3d(2, 3, 2, 2),
            nn.AvgPool3d(2, 1), nn.Conv3d(2, 4, (1, 3, 2), groups=2, dilation=2), nn.AdaptiveAvgPool3d((2, 3, 7)),
            nn.Upsample(scale_factor=2, mode="trilinear"),
        ],
    ),
    "recurrent": (
        (5, 2, 4),
        lambda: [
            nn.LSTM(4, 8, num_layers=2, bidirectional=True), nn.GRU(4, 7, bidirectional=True),
            nn.RNN(4, 5, nonlinearity="relu"), nn.RNN(4, 5), nn.LSTM(4, 8, proj_size=3), nn.LSTM(4, 6, bias=False),
            nn.GRU(4, 3, num_layers=2, bias=False),
        ],
    ),
    "attention": (
        (5, 2, 8),
        lambda: [
            twice(nn.MultiheadAttention(8, 2).eval()), nn.TransformerEncoderLayer(8, 2, 16).eval(),
            twice(nn.TransformerDecoderLayer(8, 2, 16).eval(), 2),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_tenon(name, tmp_path):
    shape, layers = LAYERS[name]

    check(tmp_path, each(*layers()), t.randn(shape))


@pytest.mark.parametrize("opset", [17, 18, 21, 23])
def test_other_opsets(opset, tmp_path):
    functions = [
        lambda a: a.sum(1), lambda a: a.mean((0, 2)), lambda a: a.amax(1, keepdim=True), F.gelu,
        lambda a: F.layer_norm(a, (7,)), lambda a: F.pad(a, (1, 2)), lambda a: a.split((2, 3), 1)[0], lambda a: a.cumsum(0),
        lambda a: F.group_norm(a, 5), lambda a: F.avg_pool1d(a, 2), lambda a: F.mish(a), lambda a: F.interpolate(a, scale_factor=2),
        lambda a: a.reshape(15, 7) @ t.ones(7, 2), lambda a: F.batch_norm(a, t.zeros(5), t.ones(5)),
    ]  # fmt: skip

    check(tmp_path, each(*functions), t.randn(X), opset=opset)


@pytest.mark.parametrize("dtype", [t.float64, t.float16, t.bfloat16], ids=str)
def test_other_floats(dtype, tmp_path):
    functions = [
        t.exp, t.tanh, t.relu, lambda a: a * 2 + 1, lambda a: a.sum(1), lambda a: a / (a.abs() + 1), lambda a: a.transpose(0, 1),
        lambda a: a.float(), lambda a: a[:, 1], lambda a: t.where(a > 0, a, -a), lambda a: t.maximum(a, a.flip(0)), lambda a: a.amax(2),
        lambda a: a.sigmoid(), lambda a: a.clamp(-0.5, 0.5), lambda a: a.mean(2), t.floor,
    ]  # fmt: skip

    def function(x):  # onnxruntime takes no bfloat16 from Python
        return [out.float() if out.dtype is dtype else out for out in each(*functions)(x.to(dtype))]

    check(tmp_path, function, t.randn(X), tolerance=0.02 if dtype is not t.float64 else 1e-6)


@pytest.mark.parametrize("dtype", [t.float16, t.bfloat16], ids=str)
def test_numbers_beside_short_floats_have_the_digits_of_eager_ops(dtype, tmp_path):
    def function(x):
        x = x.to(dtype)
        return [y.float() for y in (x * 0.3, x / 0.3, x * t.tensor(0.3), 0.3 / x, x + 0.3, 0.3 - x, x * 257)]

    check(tmp_path, function, t.linspace(0.1, 8, 200), tolerance=1e-7)
