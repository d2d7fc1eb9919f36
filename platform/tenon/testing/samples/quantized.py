"""Samples of products of 8-bit integers, against integer arithmetic."""

from __future__ import annotations

import dataclasses

import numpy as np

from tenon.engine.types import Attrs
from tenon.testing.samples.draw import Draw, integer, normal, uniform
from tenon.testing.samples.table import Reference, add


def _int8(*shape: int) -> Draw:
    return integer(-127, 128, *shape, dtype="int8")


def _steps(*shape: int) -> Draw:
    return dataclasses.replace(uniform(0.01, 0.1, *shape), dtype="float32")


def _dynamic(x: np.ndarray, weight: np.ndarray, scale: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    narrow = x.astype(np.float32)
    size = np.abs(narrow).max() if x.size else np.float32(0)
    rounded = np.rint(narrow * (np.float32(127) / size)) if size else narrow
    sums = rounded.astype(np.int64) @ weight.astype(np.int64).T
    out = sums.astype(np.float32) * (scale * (size / np.float32(127)))
    return (out if bias is None else out + bias).astype(x.dtype)


for _name, _x, _out, _bias, _more in (
    ("matrix", (5, 12), 7, True, {}),
    ("row", (12,), 7, True, {}),
    ("batch_without_bias", (2, 3, 12), 7, False, {}),
    ("one", (1, 1), 1, True, {}),
    ("no_rows", (0, 12), 7, True, {"tags": "empty"}),
    ("no_inner", (3, 0), 7, True, {"tags": "empty"}),
):  # fmt: skip
    add(
        "int8_dynamic_linear", _name, normal(*_x), _int8(_out, _x[-1]), _steps(_out),
        dataclasses.replace(normal(_out), dtype="float32") if _bias else None,
        reference=_dynamic, loose=16.0, narrow=False, **_more,
    )  # fmt: skip
add(
    "int8_dynamic_linear", "strided", normal(12, 5).in_layout("transposed"), _int8(7, 5), _steps(7), None,
    reference=_dynamic, tags="strided", loose=16.0, narrow=False,
)  # fmt: skip
add(
    "int8_dynamic_linear", "large", normal(40, 96), _int8(64, 96), _steps(64), None,
    reference=_dynamic, tags="large", loose=64.0, narrow=False,
)  # fmt: skip


def _requantized(sums: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, attrs: Attrs) -> np.ndarray:
    shape = (1, -1, *(1,) * (sums.ndim - 2))
    result = sums.astype(np.float32) * (scale * np.float32(attrs["x_step"])).reshape(shape)
    result = result if bias is None else result + bias.reshape(shape)
    result = np.maximum(result, 0) if attrs["relu"] else result
    if attrs["out_step"] is None:
        return result
    steps: np.ndarray = np.rint(result / np.float32(attrs["out_step"]) + attrs["out_zero"])
    return steps.clip(0, 255).astype(np.uint8)


def _static(
    x: np.ndarray, weight: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, **attrs: float
) -> np.ndarray:
    sums = (x.astype(np.int64) - attrs["x_zero"]) @ weight.astype(np.int64).T
    return _requantized(sums.reshape(-1, weight.shape[0]), scale, bias, attrs).reshape(
        *x.shape[:-1], weight.shape[0]
    )


def _pointwise(
    x: np.ndarray, weight: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, **attrs: float
) -> np.ndarray:
    sums = np.einsum(
        "nihw,oi->nohw", x.astype(np.int64) - attrs["x_zero"], weight[:, :, 0, 0].astype(np.int64)
    )
    return _requantized(sums, scale, bias, attrs)


_GEOMETRY = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
# Steps and scales are powers of two, so that rounding does not depend on the order of operations.
_POWERS = dataclasses.replace(integer(1, 3, 6), dtype="float32")
for _name, _attrs in (
    ("floats", {"x_step": 0.25, "x_zero": 0, "out_step": None, "out_zero": 0, "relu": False}),
    ("steps", {"x_step": 0.25, "x_zero": 3, "out_step": 512.0, "out_zero": 9, "relu": True}),
):  # fmt: skip
    add(
        "int8_linear", _name, integer(0, 256, 2, 5, 8, dtype="uint8"), _int8(6, 8), _POWERS, None,
        reference=_static, attrs=_attrs,
    )  # fmt: skip
    add(
        "int8_conv", _name, integer(0, 256, 2, 8, 5, 4, dtype="uint8"), _int8(6, 8, 1, 1), _POWERS, None,
        reference=_pointwise, attrs=_attrs | _GEOMETRY,
    )  # fmt: skip


def _largest(
    x: np.ndarray, *, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> np.ndarray:
    wide = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, kernel, axis=(2, 3))[
        :, :, :: stride[0], :: stride[1]
    ]
    largest: np.ndarray = windows.max(axis=(-2, -1))
    return largest


for _name, _kernel, _stride, _padding in (
    ("halved", (2, 2), (2, 2), (0, 0)),
    ("padded", (3, 2), (2, 1), (1, 0)),
):
    add(
        "int8_max_pool", _name, integer(0, 256, 2, 3, 7, 6, dtype="uint8"), reference=_largest,
        attrs={"kernel": _kernel, "stride": _stride, "padding": _padding},
    )  # fmt: skip


def _lstm(
    x: np.ndarray, h: np.ndarray, c: np.ndarray, w_ih: np.ndarray, s_ih: np.ndarray, w_hh: np.ndarray,
    s_hh: np.ndarray, b_ih: np.ndarray | None, b_hh: np.ndarray | None, *, sizes: tuple[int, ...],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    inputs = _dynamic(x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
    out, h, c = np.zeros((len(x), h.shape[1]), np.float32), h.copy(), c.copy()
    ends = np.cumsum(sizes)
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        for r in range(sizes[t]):
            row = ends[t] - sizes[t] + r
            pre = inputs[row] + _dynamic(h[r : r + 1], w_hh, s_hh, None)[0]
            i, forget, g, o = (pre[k * len(pre) // 4 : (k + 1) * len(pre) // 4] for k in range(4))
            c[r] = c[r] / (1 + np.exp(-forget)) + np.tanh(g) / (1 + np.exp(-i))
            h[r] = out[row] = np.tanh(c[r]) / (1 + np.exp(-o))
    return out, h, c


def _gru(
    x: np.ndarray, h: np.ndarray, w_ih: np.ndarray, s_ih: np.ndarray, w_hh: np.ndarray, s_hh: np.ndarray,
    b_ih: np.ndarray | None, b_hh: np.ndarray | None, *, sizes: tuple[int, ...], reverse: bool = False,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    def cell(inputs: np.ndarray, own: np.ndarray, state: np.ndarray) -> np.ndarray:
        own = own if b_hh is None else own + b_hh
        (reset, z, n), own_gates = np.split(inputs, 3), np.split(own, 3)
        n = np.tanh(n + own_gates[2] / (1 + np.exp(-reset - own_gates[0])))
        result: np.ndarray = n + (state - n) / (1 + np.exp(-z - own_gates[1]))
        return result

    return _states(cell, _dynamic(x, w_ih, s_ih, b_ih), h, w_hh, s_hh, sizes, reverse)


def _rnn(
    x: np.ndarray, h: np.ndarray, w_ih: np.ndarray, s_ih: np.ndarray, w_hh: np.ndarray, s_hh: np.ndarray,
    b_ih: np.ndarray | None, b_hh: np.ndarray | None, *, sizes: tuple[int, ...], reverse: bool = False,
    nonlinearity: str = "tanh",
) -> tuple[np.ndarray, ...]:  # fmt: skip
    def cell(inputs: np.ndarray, own: np.ndarray, state: np.ndarray) -> np.ndarray:
        total = inputs + own
        result: np.ndarray = np.tanh(total) if nonlinearity == "tanh" else np.maximum(total, 0)
        return result

    inputs = _dynamic(x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
    return _states(cell, inputs, h, w_hh, s_hh, sizes, reverse)


def _states(
    cell: Reference, inputs: np.ndarray, h: np.ndarray, w_hh: np.ndarray, s_hh: np.ndarray,
    sizes: tuple[int, ...], reverse: bool,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    out, h = np.zeros((len(inputs), h.shape[1]), np.float32), h.copy()
    ends = np.cumsum(sizes)
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        for r in range(sizes[t]):
            row = ends[t] - sizes[t] + r
            h[r] = out[row] = cell(inputs[row], _dynamic(h[r : r + 1], w_hh, s_hh, None)[0], h[r])
    return out, h


for _op, _gates, _reference in (("lstm", 4, _lstm), ("gru", 3, _gru), ("rnn", 1, _rnn)):
    for _name, _sizes, _bias, _back in (
        ("even", (3, 3), True, False),
        ("shrinking", (3, 2, 1), True, True),
        ("without_bias", (2,), False, False),
    ):
        _rows = [
            dataclasses.replace(normal(*shape), dtype="float32")
            for shape in ((sum(_sizes), 5), *((_sizes[0], 4),) * (1 + (_op == "lstm")))
        ]
        _width = 4 * _gates
        _biases = [dataclasses.replace(normal(_width), dtype="float32") if _bias else None for _ in range(2)]
        _attrs = {"sizes": _sizes, "reverse": _back}
        if _op == "rnn" and _back:
            _attrs["nonlinearity"] = "relu"
        add(
            f"int8_{_op}_sequence", _name, *_rows, _int8(_width, 5), _steps(_width), _int8(_width, 4), _steps(_width),
            *_biases, attrs=_attrs, reference=_reference, loose=64.0, narrow=False,
        )  # fmt: skip
