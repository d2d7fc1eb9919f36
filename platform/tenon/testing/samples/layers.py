"""Samples of layers' ops: linear, normalisation, convolution, pooling, embedding, dropout."""

from __future__ import annotations

import itertools

import numpy as np

from tenon.testing.samples.draw import integer, normal, uniform, values
from tenon.testing.samples.table import Reference, add


def _linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    result = x @ weight.T
    return result if bias is None else result + bias


for _name, _x in {"matrix": (3, 4), "vector": (4,), "batch": (2, 3, 4)}.items():
    add("linear", _name, normal(*_x), normal(5, 4), normal(5), reference=_linear, loose=8.0)
add("linear", "no_bias", normal(3, 4), normal(5, 4), None, reference=_linear, loose=8.0)
add("linear", "empty", normal(0, 4), normal(5, 4), normal(5), reference=_linear, tags="empty")


def _sparse_linear(
    x: np.ndarray, nonzeros: np.ndarray, columns: np.ndarray, starts: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    weight = np.zeros((len(starts) - 1, x.shape[-1]), x.dtype)
    for row, (a, b) in enumerate(itertools.pairwise(starts)):
        weight[row, columns[a:b]] = nonzeros[a:b]
    return x @ weight.T if bias is None else x @ weight.T + bias


_COLUMNS, _ROWS = values(0, 3, 1, 2, 3, 0, dtype="int64"), values(0, 2, 2, 5, 6, dtype="int64")
for _name, _x in (("matrix", (3, 4)), ("row", (4,)), ("batches", (2, 3, 4)), ("many", (40, 4))):
    add(
        "sparse_linear",
        _name,
        normal(*_x),
        normal(6),
        _COLUMNS,
        _ROWS,
        normal(4),
        reference=_sparse_linear,
        loose=8.0,
    )
add(
    "sparse_linear",
    "no_bias",
    normal(3, 4),
    normal(6),
    _COLUMNS,
    _ROWS,
    None,
    reference=_sparse_linear,
    loose=8.0,
)
add(
    "addmm", "plain", normal(3, 5), normal(3, 4), normal(4, 5), reference=lambda x, a, b: x + a @ b, loose=8.0
)
add("addmm", "scaled", normal(5), normal(3, 4), normal(4, 5), reference=lambda x, a, b, beta, alpha: beta * x + alpha * (a @ b),
    attrs={"beta": 0.5, "alpha": 2.0}, tags="broadcast", loose=8.0, narrow=False)  # fmt: skip


for _n, _m in ((3, 4), (1, 5), (0, 3)):
    add("outer", f"of_{_n}_and_{_m}", normal(_n), normal(_m), reference=np.multiply.outer,
        tags="" if _n else "empty")  # fmt: skip


def _normalised(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axis=axes, keepdims=True)) / np.sqrt(wide.var(axis=axes, keepdims=True) + eps)


def _layer_norm(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, rank: int, eps: float = 1e-5
) -> np.ndarray:
    result = _normalised(x, tuple(range(x.ndim - rank, x.ndim)), eps)
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).astype(x.dtype)


add(
    "layer_norm",
    "rows",
    normal(3, 6),
    normal(6),
    normal(6),
    reference=_layer_norm,
    attrs={"rank": 1},
    loose=20.0,
)
add("layer_norm", "plain", normal(2, 3, 4), None, None, reference=_layer_norm, attrs={"rank": 2}, loose=20.0)
add("batch_norm", "channels", normal(4, 3, 5), normal(3), normal(3), attrs={"eps": 1e-5}, graded=1)
add("batch_norm", "plain", normal(4, 3), None, None, attrs={"eps": 1e-5}, graded=1)


def _inference(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    eps: float,
) -> np.ndarray:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    w, b, m, v = (a.reshape(shape) for a in (weight, bias, mean, variance))
    return (x - m) / np.sqrt(v + eps) * w + b


add("batch_norm_inference", "channels", normal(4, 3, 5), normal(3), normal(3), normal(3), uniform(0.5, 2, 3), reference=_inference,
    attrs={"eps": 1e-5}, constant=(3, 4), loose=20.0, narrow=False)  # fmt: skip


def _channels(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    result = x if weight is None else x * weight.reshape(shape)
    return result if bias is None else result + bias.reshape(shape)


for _name, _x in {"images": (4, 3, 5), "matrix": (4, 3), "empty": (0, 3, 2)}.items():
    add("channel_affine", _name, normal(*_x), normal(3), normal(3), reference=_channels)
add("channel_affine", "no_weight", normal(2, 3, 2), None, normal(3), reference=_channels)
add("channel_affine", "no_bias", normal(2, 3, 2), normal(3), None, reference=_channels)
_NEEDS = (True, True, True)
add(
    "channel_affine_grad",
    "images",
    normal(4, 3, 5),
    normal(4, 3, 5),
    normal(3),
    attrs={"needs": _NEEDS},
    order=0,
)
add(
    "layer_norm_grad",
    "rows",
    normal(3, 6),
    normal(3, 6),
    normal(6),
    normal(3, 1),
    uniform(0.5, 2, 3, 1),
    attrs={"rank": 1, "needs": _NEEDS},
    order=0,
)
add(
    "batch_norm_grad",
    "channels",
    normal(4, 3),
    normal(4, 3),
    normal(3),
    normal(1, 3),
    uniform(0.5, 2, 1, 3),
    attrs={"needs": _NEEDS},
    order=0,
)


def _conv(
    x: np.ndarray,
    weight: np.ndarray,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    sizes = [
        (s - (k - 1) * d - 1) // t + 1
        for s, k, d, t in zip(x.shape[2:], weight.shape[2:], dilation, stride, strict=True)
    ]
    result = np.zeros((x.shape[0], weight.shape[0], *sizes), x.dtype)
    own, out = weight.shape[1], weight.shape[0] // groups
    for group in range(groups):
        part, kernel = x[:, group * own : (group + 1) * own], weight[group * out : (group + 1) * out]
        for position in np.ndindex(*weight.shape[2:]):
            window = tuple(
                slice(i * d, i * d + (n - 1) * t + 1, t)
                for i, d, n, t in zip(position, dilation, sizes, stride, strict=True)
            )
            result[:, group * out : (group + 1) * out] += np.einsum(
                "nc...,oc->no...",
                part[(slice(None), slice(None), *window)],
                kernel[(slice(None), slice(None), *position)],
            )
    return result


def _attrs(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int = 1
) -> dict[str, object]:
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


_ONE = (1, 1)
for _name, _x, _w, _a in (
    ("plain", (2, 3, 5, 6), (4, 3, 3, 3), _attrs(_ONE, (0, 0), _ONE)),
    ("padded", (1, 2, 5, 5), (3, 2, 3, 3), _attrs(_ONE, _ONE, _ONE)),
    ("stepped", (2, 2, 7, 6), (3, 2, 3, 2), _attrs((2, 3), (1, 0), _ONE)),
    ("dilated", (1, 2, 7, 7), (2, 2, 3, 3), _attrs(_ONE, _ONE, (2, 2))),
    ("groups", (2, 4, 5, 5), (6, 2, 3, 3), _attrs(_ONE, _ONE, _ONE, 2)),
    ("depthwise", (2, 4, 5, 5), (4, 1, 3, 3), _attrs(_ONE, (0, 0), _ONE, 4)),
    ("line", (2, 3, 8), (4, 3, 3), _attrs((2,), (1,), (1,))),
):  # fmt: skip
    add("conv", _name, normal(*_x), normal(*_w), reference=_conv, attrs=_a, loose=20.0, narrow=False)


def _biased(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, **attrs: object) -> np.ndarray:
    result = _conv(x, weight, **attrs)
    return result + bias.reshape((1, -1) + (1,) * (x.ndim - 2))


add(
    "convolution",
    "bias",
    normal(2, 3, 5, 6),
    normal(4, 3, 3, 3),
    normal(4),
    reference=_biased,
    attrs=_attrs(_ONE, _ONE, _ONE),
    loose=20.0,
    narrow=False,
)
add(
    "conv_input_grad",
    "stepped",
    normal(2, 3, 3, 2),
    normal(3, 2, 3, 2),
    attrs={"sizes": (6, 4), **_attrs((2, 2), (1, 0), _ONE)},
)
add(
    "conv_weight_grad",
    "stepped",
    normal(2, 2, 6, 4),
    normal(2, 3, 3, 2),
    attrs={"kernel": (3, 2), **_attrs((2, 2), (1, 0), _ONE)},
)

_POOL = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}


def _pool(x: np.ndarray, function: Reference) -> np.ndarray:
    n, c, h, w = x.shape
    return function(x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2), axis=(3, 5))


add(
    "max_pool",
    "plain",
    normal(2, 3, 5, 6),
    reference=lambda x, **a: _pool(x, np.max),
    attrs={**_POOL, "dilation": _ONE},
)
add(
    "max_pool",
    "padded",
    normal(1, 2, 6, 5),
    attrs={"kernel": (3, 3), "stride": (2, 2), "padding": _ONE, "dilation": _ONE},
)
add("max_pool_indices", "plain", normal(2, 3, 4, 4), attrs={**_POOL, "dilation": _ONE})
add(
    "avg_pool",
    "plain",
    normal(2, 3, 5, 6),
    reference=lambda x, **a: _pool(x, np.mean),
    attrs=_POOL,
    loose=8.0,
    narrow=False,
)
add(
    "avg_pool",
    "padded",
    normal(1, 2, 6, 5),
    attrs={"kernel": (3, 3), "stride": (2, 2), "padding": _ONE, "include_pad": False},
)
add(
    "adaptive_avg_pool",
    "one",
    normal(2, 3, 4, 5),
    reference=lambda x, sizes: x.mean((2, 3), keepdims=True),
    attrs={"sizes": (1, 1)},
    loose=8.0,
    narrow=False,
)
add("adaptive_avg_pool", "uneven", normal(2, 3, 5, 7), attrs={"sizes": (2, 3)})
add(
    "avg_pool_grad",
    "plain",
    normal(2, 3, 2, 2),
    attrs={"shape": (2, 3, 4, 4), **_POOL, "ceil_mode": False, "include_pad": True, "divisor": None},
)
add("adaptive_avg_pool_grad", "plain", normal(2, 3, 2, 3), attrs={"shape": (2, 3, 4, 6)})
_ASCENDING = np.arange(96.0).reshape(
    2, 3, 4, 4
)  # the pooled maxima must be those of the input, as in any backward pass
add("max_pool_grad", "plain", normal(2, 3, 2, 2), values(*_ASCENDING.ravel(), shape=(2, 3, 4, 4)),
    values(*_ASCENDING[..., 1::2, 1::2].ravel(), shape=(2, 3, 2, 2)), attrs={**_POOL, "dilation": _ONE}, constant=(1, 2), order=0)  # fmt: skip

add("embedding", "rows", normal(5, 3), integer(0, 5, 2, 4), reference=lambda w, i: w[i])
add("embedding", "empty", normal(5, 3), integer(0, 5, 0), reference=lambda w, i: w[i], tags="empty")
add(
    "one_hot",
    "rows",
    integer(0, 5, 2, 4),
    reference=lambda i, classes: np.eye(classes, dtype=np.int64)[i],
    attrs={"classes": 5},
)
add("embedding_grad", "rows", normal(2, 4, 3), integer(0, 5, 2, 4), attrs={"rows": 5})
add("embedding_rows", "rows", normal(5, 3), integer(0, 5, 2, 4), order=1)
