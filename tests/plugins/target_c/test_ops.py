"""Each kernel of the target c against tenon: odd shapes, broadcast and moved operands, empty arrays.

The functions of a test are outputs of one program, as a compiler's start costs more than all of them.
"""

import pytest
from tests.plugins.target_c.programs import check, each, sanitized

import tenon as t
from tenon import nn
from tenon.nn import functional as F

pytestmark = pytest.mark.slow

X, Y = (3, 5, 7), (3, 5, 7)


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


def quick(cases, *few):
    """The names of all cases; those that are not among the few are slow."""
    return [pytest.param(name, marks=() if name in few else pytest.mark.slow) for name in cases]


def method(name):
    return lambda x: getattr(t, name)(x)


UNARY = "exp tanh sigmoid erf relu neg abs sign floor ceil trunc round sin cos square expm1 isnan isfinite signbit"
POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal atan asinh"
CASES = {
    "unary": (each(*map(method, UNARY.split())), lambda: [t.randn(X)]),
    "positive": (each(*map(method, POSITIVE.split())), lambda: [t.rand(X) + 0.1]),
    "large": (
        each(*map(method, ["exp", "tanh", "sigmoid", "erf"])),
        lambda: [t.tensor([-200.0, -88.0, -20.0, -1e-8, 0.0, 1e-8, 20.0, 80.0, float("-inf"), float("nan")])],
    ),
    "log_edges": (t.log, lambda: [t.tensor([0.0, -1.0, 1e-40, 1.0, float("inf"), float("nan")])]),
    "binary": (
        each(
            lambda a, b: a + b, lambda a, b: a * b - b, lambda a, b: a / (b.abs() + 1), t.maximum,
            lambda a, b: t.where(a > b, a, b * 2), lambda a, b: a.transpose(0, 2) + b.transpose(0, 2),
            lambda a, b: a[:, :1] + b[..., :1], lambda a, b: a.clamp(-0.5, 0.5) + b.clamp(min=0), t.atan2,
            t.remainder, lambda a, b: a**2 + b**3, lambda a, b: (a > 0) & (b < 0),
            lambda a, b: t.pow(a.abs() + 0.1, b), lambda a, b: a.to(t.float64) * 2, lambda a, b: a.long() * b.long(),
            lambda a, b: (a * 3).int() + 1, lambda a, b: a[1, 2, 3] * b,
        ),
        lambda: [t.randn(X), t.randn(Y)],
    ),
    "reductions": (
        each(
            lambda a: a.sum(), lambda a: a.sum(1), lambda a: a.sum((0, 2)), lambda a: a.mean((0, 2), keepdim=True),
            lambda a: a.amax(1), lambda a: a.amin((0, 1)), lambda a: a.argmax(1), lambda a: a.argmin(),
            lambda a: a.cumsum(1), lambda a: a.transpose(0, 1).sum(1), lambda a: (a > 0).any(1),
            lambda a: (a > 0).all(), lambda a: a.var(1), lambda a: a.std((0, 2)), lambda a: t.logsumexp(a, 1),
            lambda a: a.prod(2), lambda a: a.norm(dim=1), lambda a: a.double().sum(0),
        ),
        lambda: [t.randn(X)],
    ),
    "movement": (
        each(
            lambda a: a.permute(2, 0, 1), lambda a: a.flip(1), lambda a: a.roll(2, 1), lambda a: t.cat([a, a * 2], 1),
            lambda a: t.stack([a, a], 2), lambda a: F.pad(a, (1, 2, 0, 1)),
            lambda a: a.reshape(15, 7).t().reshape(7, 3, 5), lambda a: a[1:, ::2, [0, 3, -1]], t.tril,
            lambda a: a.unsqueeze(1).expand(3, 4, 5, 7), lambda a: a[:, None, 2],
            lambda a: F.pad(a, (2, 2), mode="reflect"), lambda a: a.unbind(1)[2], lambda a: a.chunk(2, 2)[1] * 1,
            lambda a: a.repeat(1, 2, 1), lambda a: F.pad(a, (-1, 1)), lambda a: a.diagonal(0, 1, 2),
            lambda a: t.triu(a, 1), lambda a: a,
        ),
        lambda: [t.randn(X)],
    ),
    "rows": (
        each(
            lambda a: F.softmax(a, -1), lambda a: F.softmax(a, 1), lambda a: F.log_softmax(a, 0),
            lambda a: F.layer_norm(a, (7,)), lambda a: F.layer_norm(a, (5, 7)), lambda a: F.rms_norm(a, (7,)),
            lambda a: F.group_norm(a, 5), lambda a: F.normalize(a, dim=1), F.gelu,
            lambda a: F.gelu(a, approximate="tanh"), F.elu, F.mish, F.leaky_relu, F.hardtanh, F.logsigmoid, F.silu,
            lambda a: F.glu(a[..., :6]), F.softplus, F.hardswish,
        ),
        lambda: [t.randn(X)],
    ),
    "products": (
        each(
            lambda a, b: a @ b, lambda a, b: a[0] @ b, lambda a, b: a @ b[0], lambda a, b: a[0, 0] @ b[0, 0],
            lambda a, b: a[0, 0, 0] @ b[0, 0], lambda a, b: a @ b[0, 0, :, 0], lambda a, b: a[:, :1] @ b,
            lambda a, b: a.transpose(2, 3).contiguous().transpose(2, 3) @ b.transpose(2, 3).contiguous().transpose(2, 3),
            lambda a, b: a.double() @ b.double(), lambda a, b: a[..., :0] @ b[..., :0, :],
            lambda a, b: t.einsum("abij,abjk->aik", a, b), lambda a, b: F.linear(a, b[0, 0].t()),
        ),
        lambda: [t.randn(2, 3, 5, 7), t.randn(2, 3, 7, 4)],
    ),
    "empty": (
        each(
            lambda a: a + 1, lambda a: a.sum(0), lambda a: a @ t.ones(3, 4), t.relu, lambda a: F.softmax(a, -1),
            lambda a: t.cat([a, t.ones(2, 3)], 0), lambda a: a.sum(), lambda a: a.prod(), lambda a: (a > 0).all(),
        ),
        lambda: [t.randn(0, 3)],
    ),
    "no_axes": (
        each(lambda a: a + 1, t.sum, lambda a: a.relu() * a, lambda a: a.reshape(1, 1), lambda a: a.expand(3, 2)),
        lambda: [t.randn(())],
    ),
    "integers": (
        each(
            lambda i: F.embedding(i, t.arange(30.0).reshape(5, 6)), lambda i: t.arange(30.0).reshape(5, 6)[i],
            lambda i: t.arange(30.0).reshape(5, 6)[:, i], lambda i: t.gather(t.arange(30.0).reshape(5, 6), 1, i),
            lambda i: i + 1, lambda i: i * i - i, lambda i: i == 3, lambda i: i.float() * 0.5, lambda i: i.sum(1),
            lambda i: (i > 2).long().sum(), lambda i: t.where(i > 2, i, -i), lambda i: i * 4611686018427387904,
        ),
        lambda: [t.tensor([[1, 4, 2], [0, 3, 3]])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", quick(CASES, "unary", "binary", "products", "integers", "empty"))
def test_ops_equal_tenon(name, tmp_path):
    function, examples = CASES[name]

    check(tmp_path, function, *examples())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ops_on_sanitizers(name, tmp_path):
    function, examples = CASES[name]
    check(tmp_path, function, *examples())

    assert "0 failures" in sanitized(tmp_path)


LAYERS = {
    "convolution": (
        (2, 4, 9, 11),
        lambda: [
            nn.Conv2d(4, 6, 3, padding=1, stride=2), nn.Conv2d(4, 8, 3, dilation=2),
            nn.Conv2d(4, 8, (1, 3), groups=2, padding=(0, 1)), nn.Conv2d(4, 4, 3, groups=4, padding=1),
            nn.Conv2d(4, 8, 5, groups=4, stride=2, padding=2), nn.Conv2d(4, 7, 1), nn.Conv2d(4, 3, 3, padding=4),
            nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
            nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), nn.ConvTranspose2d(4, 4, 3, dilation=2, bias=False),
            nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 13, 3, padding=1, bias=False),
        ],
    ),
    "pooling": (
        (2, 4, 9, 11),
        lambda: [
            nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(2, count_include_pad=False, padding=1),
            nn.AdaptiveAvgPool2d((3, 4)), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(2), nn.MaxPool2d(2, dilation=2),
            nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(2),
            nn.AvgPool2d(2, ceil_mode=True), nn.BatchNorm2d(4).eval(),
        ],
    ),
    "one_axis": (
        (2, 3, 17),
        lambda: [
            nn.Conv1d(3, 5, 3, padding=1), nn.Conv1d(3, 6, 4, groups=3, stride=3), nn.MaxPool1d(2),
            nn.ConvTranspose1d(3, 2, 4, 2),
        ],
    ),
    "three_axes": (
        (2, 2, 5, 6, 7),
        lambda: [
            nn.Conv3d(2, 5, 3, padding=1, stride=(1, 2, 1)), nn.MaxPool3d(2), nn.ConvTranspose3d(2, 3, 2, 2),
            nn.AvgPool3d(2, 1), nn.Conv3d(2, 4, (1, 3, 2), groups=2, dilation=2),
        ],
    ),
    "wide": ((1, 3, 70, 300), lambda: [nn.Conv2d(3, 7, 3, padding=1), nn.Conv2d(3, 100, 1, stride=3), nn.MaxPool2d(2)]),
    "lines_of_eights": (
        (2, 3, 10, 24),
        lambda: [nn.Conv2d(3, 7, 3, padding=1), nn.Conv2d(3, 4, (5, 3), padding=(2, 1)), nn.Conv2d(3, 9, 3, padding=(0, 1))],
    ),
    "deep": ((1, 40, 6, 6), lambda: [nn.Conv2d(40, 9, 3, padding=1), nn.Conv2d(40, 80, 3, stride=2, groups=2)]),
    "recurrent": (
        (5, 2, 4),
        lambda: [
            nn.LSTM(4, 8, num_layers=2, bidirectional=True), nn.GRU(4, 7, bidirectional=True),
            nn.RNN(4, 5, nonlinearity="relu"), nn.RNN(4, 5), nn.LSTM(4, 8, proj_size=3), nn.LSTM(4, 6, bias=False),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", quick(LAYERS, "convolution", "recurrent"))
def test_layers_equal_tenon(name, tmp_path):
    shape, layers = LAYERS[name]

    check(tmp_path, each(*layers()), t.randn(shape))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_layers_on_sanitizers(name, tmp_path):
    shape, layers = LAYERS[name]
    check(tmp_path, each(*layers()), t.randn(shape))

    assert "0 failures" in sanitized(tmp_path)


def test_arguments_of_many_axes(tmp_path):
    check(tmp_path, lambda x: (x.sum(0), x.permute(*range(9, -1, -1)) + 1), t.randn(2, *(1,) * 7, 3, 2))


def test_packed_sequences_of_several_lengths(tmp_path):
    lstm, gru = nn.LSTM(3, 4, bidirectional=True), nn.GRU(3, 5)

    def function(rows):
        packed = nn.utils.rnn.PackedSequence(rows, t.tensor([3, 2, 2, 2, 1, 1]))
        return each(lambda p: lstm(p)[0].data, lambda p: lstm(p)[1], lambda p: gru(p)[1])(packed)

    check(tmp_path, function, t.randn(11, 3))


def test_attention_with_and_without_masks(tmp_path):
    attend = F.scaled_dot_product_attention
    mask = t.randn(2, 1, 60, 70) > 0

    check(
        tmp_path,
        each(
            attend,
            lambda q, k, v: attend(q, q, q, is_causal=True),
            lambda q, k, v: attend(q, k, v, attn_mask=mask),
            lambda q, k, v: attend(q.transpose(1, 2), k.transpose(1, 2)[:, :60], v.transpose(1, 2)[:, :60]),
            lambda q, k, v: attend(q, k, v, attn_mask=t.zeros(2, 1, 60, 70) == 1),
            lambda q, k, v: attend(q, k, v, attn_mask=t.linspace(-1, 1, 70)),
        ),
        t.randn(2, 3, 60, 8),
        t.randn(2, 3, 70, 8),
        t.randn(2, 3, 70, 5),
    )
