"""Samples of activations and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tenon.engine.types import Attrs
from tenon.testing.samples.draw import Draw, normal, uniform, values
from tenon.testing.samples.table import Reference, add


def _family(
    op: str,
    reference: Reference | None,
    attrs: Attrs = None,
    draw: Callable[..., Draw] = normal,
    **more: object,
) -> None:
    add(op, "matrix", draw(3, 4), reference=reference, attrs=attrs, loose=8.0, **more)
    add(op, "scalar", draw(), reference=reference, attrs=attrs, tags="scalar", loose=8.0, **more)
    add(op, "empty", draw(0, 3), reference=reference, attrs=attrs, tags="empty", **more)
    add(
        op,
        "strided",
        draw(3, 4).in_layout("strided"),
        reference=reference,
        attrs=attrs,
        tags="strided",
        loose=8.0,
        **more,
    )
    add(op, "large", draw(20, 30), reference=reference, attrs=attrs, tags="large", loose=8.0, **more)


def _wide(function: Reference) -> Reference:
    """Compute ``function`` in float64; return the result in the argument's dtype."""

    def run(x: np.ndarray, **attrs: object) -> np.ndarray | tuple[np.ndarray, ...]:
        result = function(x.astype(np.float64), **attrs)
        if isinstance(result, tuple):
            return tuple(v.astype(x.dtype) for v in result)
        return np.asarray(result).astype(x.dtype)

    return run


_erf = np.vectorize(math.erf, otypes=[float])
_gelu = _wide(lambda x, approximate="none": 0.5 * x * (1 + (
    _erf(x / math.sqrt(2)) if approximate == "none" else np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))))  # fmt: skip
_sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
_softplus = lambda x: np.log1p(np.exp(x))  # noqa: E731

_family("relu", lambda x: np.maximum(x, 0))
add(
    "relu",
    "zero_and_nan",
    values(0.0, -0.0, np.nan, np.inf, -np.inf),
    reference=lambda x: np.maximum(x, 0),
    tags="extreme",
)
_family("gelu", _gelu)
add("gelu", "tanh", normal(3, 4), reference=_gelu, attrs={"approximate": "tanh"}, loose=8.0)
_family("silu", _wide(lambda x: x * _sigmoid(x)))
_family("mish", _wide(lambda x: x * np.tanh(_softplus(x))))
_family("leaky_relu", lambda x, slope: np.where(x > 0, x, x * x.dtype.type(slope)), {"slope": 0.2})
_family("elu", _wide(lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x))), {"alpha": 1.5})
_family(
    "softplus",
    _wide(lambda x, beta, threshold: np.where(x * beta > threshold, x, _softplus(beta * x) / beta)),
    {"beta": 2.0, "threshold": 20.0},
)
_family("logsigmoid", _wide(lambda x: -_softplus(-x)))
_family("hardtanh", lambda x, low, high: np.clip(x, low, high), {"low": -0.5, "high": 0.7})
_family("hardsigmoid", _wide(lambda x: np.clip(x / 6 + 0.5, 0, 1)))
_family("hardswish", _wide(lambda x: x * np.clip(x / 6 + 0.5, 0, 1)))
_family(
    "threshold",
    lambda x, threshold, value: np.where(x > threshold, x, x.dtype.type(value)),
    {"threshold": 0.1, "value": 3.0},
    narrow=False,
)
_family("softshrink", _wide(lambda x, bound: np.sign(x) * np.maximum(np.abs(x) - bound, 0)), {"bound": 0.3})
_family(
    "hardshrink",
    lambda x, bound: np.where(np.abs(x) > bound, x, x.dtype.type(0)),
    {"bound": 0.3},
    narrow=False,
)
_family("erf", _wide(_erf))
_family("erfc", _wide(lambda x: 1 - _erf(x)))
_family("erfinv", None, draw=lambda *s: uniform(-0.8, 0.8, *s))
add(
    "relu_grad",
    "open_and_closed",
    normal(3, 4),
    normal(3, 4),
    reference=lambda g, out: np.where(out <= 0, 0, g).astype(g.dtype),
    constant=(1,),
)

add(
    "leaky_relu_grad",
    "both sides",
    normal(3, 4),
    normal(3, 4),
    attrs={"slope": 0.2},
    reference=lambda g, x, slope: np.where(x > 0, g, g * g.dtype.type(slope)),
    order=0,
)
add(
    "softplus_grad",
    "both sides",
    normal(3, 4),
    normal(3, 4),
    attrs={"beta": 2.0, "threshold": 1.0},
    reference=lambda g, x, beta, threshold: np.where(
        x * beta > threshold, g, g * _sigmoid(beta * x.astype(np.float64))
    ).astype(g.dtype),
    order=0,
)
_LIMITS = {"nan": 0.5, "high": 7.0, "low": -3.0}
add(
    "nan_to_num",
    "nan and infinities",
    values(np.nan, 1.5, np.inf, -np.inf, -2.0),
    attrs=_LIMITS,
    reference=lambda x, nan, high, low: np.nan_to_num(x, nan=nan, posinf=high, neginf=low),
    tags="extreme",
)
add("nan_to_num", "plain", normal(3, 4), attrs=_LIMITS, reference=lambda x, **_: x)

_lower, _upper = uniform(-1.0, -0.2, 3, 4), uniform(0.2, 1.0, 4)
add("clamp", "numbers", normal(3, 4), -0.5, 0.5, reference=np.clip)
add(
    "clamp",
    "below",
    normal(3, 4),
    -0.5,
    None,
    reference=lambda x, low, high: np.maximum(x, x.dtype.type(low)),
)
add(
    "clamp",
    "above",
    normal(3, 4),
    None,
    0.5,
    reference=lambda x, low, high: np.minimum(x, x.dtype.type(high)),
)
add("clamp", "tensors", normal(3, 4), _lower, _upper, reference=np.clip, tags="broadcast")


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    if not x.size:
        return x
    axis = axis if x.ndim else None
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


for _op, _reference in {
    "softmax": _wide(_softmax),
    "log_softmax": _wide(lambda x, axis: np.log(_softmax(x, axis))),
}.items():
    for _axis in (0, 1):
        add(_op, f"axis_{_axis}", normal(3, 4), reference=_reference, attrs={"axis": _axis}, loose=8.0)
    add(_op, "batch", normal(2, 3, 4), reference=_reference, attrs={"axis": 1}, loose=8.0)
    add(_op, "scalar", normal(), reference=_reference, attrs={"axis": 0}, tags="scalar")
    add(_op, "empty", normal(0, 3), reference=_reference, attrs={"axis": 1}, tags="empty")
    add(
        _op,
        "far",
        values(1000.0, -1000.0, 999.0),
        attrs={"axis": 0},
        reference=_reference if _op == "softmax" else None,
        tags="extreme",
    )
    add(f"{_op}_grad", "rows", normal(3, 4), normal(3, 4), attrs={"axis": 1})


def _safe_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    return np.nan_to_num(_wide(_softmax)(x, axis=axis))


for _axis in (0, 1):
    add(
        "safe_softmax",
        f"axis_{_axis}",
        normal(3, 4),
        reference=_safe_softmax,
        attrs={"axis": _axis},
        loose=8.0,
    )
add("safe_softmax", "scalar", normal(), reference=_safe_softmax, attrs={"axis": 0}, tags="scalar")
add("safe_softmax", "empty", normal(3, 0), reference=_safe_softmax, attrs={"axis": 1}, tags="empty")
add(
    "safe_softmax",
    "nothing",
    values(-math.inf, -math.inf, -math.inf),
    attrs={"axis": 0},
    reference=_safe_softmax,
    tags="extreme",
)


def _reduced(function: Reference) -> Reference:
    return _wide(lambda x, axes, keepdims=False, **attrs: function(x, axes, keepdims, **attrs))


for _op, _function, _attrs in (
    ("var", lambda x, a, k, correction: np.var(x, axis=a, keepdims=k, ddof=correction), {"correction": 1}),
    ("std", lambda x, a, k, correction: np.std(x, axis=a, keepdims=k, ddof=correction), {"correction": 1}),
    ("var_mean", lambda x, a, k, correction: (np.var(x, axis=a, keepdims=k, ddof=correction), x.mean(a, keepdims=k)), {"correction": 0}),
    ("std_mean", lambda x, a, k, correction: (np.std(x, axis=a, keepdims=k, ddof=correction), x.mean(a, keepdims=k)), {"correction": 1}),
    ("logsumexp", lambda x, a, k: np.log(np.exp(x).sum(axis=a, keepdims=k)), {}),
    ("vector_norm", lambda x, a, k, order: (np.abs(x) ** order).sum(axis=a, keepdims=k) ** (1 / order), {"order": 2.0}),
    ):  # fmt: skip
    for _name, _axes, _keep in (("rows", (1,), False), ("all", (0, 1), False), ("keepdims", (0,), True)):
        add(
            _op,
            _name,
            normal(3, 4),
            reference=_reduced(_function),
            attrs={"axes": _axes, "keepdims": _keep, **_attrs},
            loose=8.0,
        )
add(
    "vector_norm",
    "order_3",
    normal(3, 4),
    reference=_reduced(lambda x, a, k, order: (np.abs(x) ** order).sum(axis=a) ** (1 / order)),
    attrs={"axes": (1,), "order": 3.0},
    loose=8.0,
)
add(
    "vector_norm",
    "infinite",
    normal(3, 4),
    reference=_reduced(lambda x, a, k, order: np.abs(x).max(axis=a)),
    attrs={"axes": (1,), "order": math.inf},
)
