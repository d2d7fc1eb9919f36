"""Samples of reductions and scans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.testing.samples.draw import Draw, boolean, expanded, integer, normal, uniform, values
from tenon.testing.samples.table import Reference, add


def _along(function: Reference) -> Reference:
    return lambda x, axes, keepdims=False: function(x, axis=axes, keepdims=keepdims)


def _reduction(
    op: str, function: Reference, draw: Callable[..., Draw] = normal, empty: bool = True, **more: object
) -> None:
    reference = _along(function)
    for name, axes in {"all": (0, 1, 2), "first": (0,), "last": (2,), "two": (0, 2), "none": ()}.items():
        if name == "none" and op in ("any", "all"):
            continue
        add(op, name, draw(2, 3, 4), reference=reference, attrs={"axes": axes}, **more)
    add(op, "keepdims", draw(2, 3, 4), reference=reference, attrs={"axes": (1,), "keepdims": True}, **more)
    add(op, "scalar", draw(), reference=reference, attrs={"axes": ()}, tags="scalar", **more)
    add(
        op,
        "transposed",
        draw(3, 4).in_layout("transposed"),
        reference=reference,
        attrs={"axes": (0,)},
        tags="strided",
        **more,
    )
    add(op, "large", draw(30, 40), reference=reference, attrs={"axes": (1,)}, tags="large", **more)
    add(op, "one", draw(1, 1), reference=reference, attrs={"axes": (0, 1)}, **more)
    if draw is normal:
        tags = "expanded non-smooth" if op in ("amax", "amin") else "expanded"
        add(
            op,
            "expanded",
            expanded((3, 1), 3, 4),
            reference=reference,
            attrs={"axes": (1,)},
            tags=tags,
            **more,
        )
    if empty:
        more.pop("order", None)
        add(
            op,
            "empty",
            draw(2, 0, 3),
            reference=reference,
            attrs={"axes": (1,)},
            tags="empty",
            order=0 if op == "mean" else 2,
            **more,
        )
    else:
        add(op, "empty", draw(2, 0, 3), reference=reference, attrs={"axes": (0,)}, tags="empty", **more)


def _mean(x: np.ndarray, axis: int, keepdims: bool) -> np.ndarray:
    if x.size == 0:
        return np.full(np.sum(x, axis=axis, keepdims=keepdims).shape, np.nan, x.dtype)
    return np.mean(
        x, axis=axis, keepdims=keepdims, dtype=x.dtype if x.dtype.itemsize > 2 else np.float32
    ).astype(x.dtype)


_reduction("sum", lambda x, **k: np.sum(x, dtype=x.dtype, **k))
_reduction("mean", _mean)
_reduction("prod", lambda x, **k: np.prod(x, dtype=x.dtype, **k), lambda *s: uniform(0.5, 1.5, *s), loose=4.0)
_reduction("amax", np.amax, empty=False)
_reduction("amin", np.amin, empty=False)
_reduction("any", np.any, boolean)
_reduction("all", np.all, boolean)
add("sum", "integers", integer(-5, 5, 3, 4), reference=_along(np.sum), attrs={"axes": (0,)}, tags="integer")
add("sum", "booleans", boolean(3, 4), reference=_along(np.sum), attrs={"axes": (1,)}, tags="integer")
add("prod", "one_zero", values(2.0, 0.0, 3.0), reference=_along(np.prod), attrs={"axes": (0,)})
add("prod", "two_zeros", values(2.0, 0.0, 0.0), reference=_along(np.prod), attrs={"axes": (0,)})
add("amax", "ties", values(1.0, 3.0, 3.0), reference=_along(np.amax), attrs={"axes": (0,)}, tags="non-smooth")
add("amax", "nan", values(1.0, np.nan, 3.0), reference=_along(np.amax), attrs={"axes": (0,)}, tags="extreme")
add("any", "floats", normal(3, 4), reference=_along(np.any), attrs={"axes": (1,)})

for _op, _function in {"argmax": np.argmax, "argmin": np.argmin}.items():
    _reference = lambda x, axis, keepdims=False, function=_function: function(x, axis=axis, keepdims=keepdims)  # noqa: E731
    for _axis in (0, 1, None):
        add(_op, f"axis_{_axis}", normal(3, 4), reference=_reference, attrs={"axis": _axis})
    add(_op, "keepdims", normal(3, 4), reference=_reference, attrs={"axis": 1, "keepdims": True})
    add(_op, "ties", integer(0, 3, 20), reference=_reference, attrs={"axis": 0}, tags="integer")
    add(_op, "nan", values(1.0, np.nan, 3.0, np.nan), reference=_reference, attrs={"axis": 0}, tags="extreme")
    add(_op, "scalar", normal(), reference=lambda x, axis: np.int64(0), attrs={"axis": None}, tags="scalar")


def _sum_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    lead = x.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, s in enumerate(shape) if s == 1 and x.shape[i + lead] != 1
    )
    return np.sum(x, axis=axes, keepdims=True).reshape(shape)


for _name, _from, _to in (
    ("row", (3, 4), (4,)), ("column", (3, 4), (3, 1)), ("scalar", (3, 4), ()), ("middle", (2, 3, 4), (1, 4)), ("empty", (0, 4), (1, 4)),
):  # fmt: skip
    add("sum_to", _name, normal(*_from), reference=_sum_to, attrs={"shape": _to})
for _op in ("cumsum", "cumprod"):
    _function = getattr(np, _op)
    _reference = lambda x, axis, function=_function: function(x, axis=axis, dtype=x.dtype) if x.ndim else x  # noqa: E731
    for _axis in (0, 1):
        add(
            _op,
            f"axis_{_axis}",
            uniform(0.5, 1.5, 3, 4),
            reference=_reference,
            attrs={"axis": _axis},
            loose=4.0,
        )
    add(_op, "empty", normal(0, 3), reference=_reference, attrs={"axis": 0}, tags="empty")
    add(_op, "scalar", uniform(0.5, 1.5), reference=_reference, attrs={"axis": 0}, tags="scalar")
    add(
        _op,
        "transposed",
        uniform(0.5, 1.5, 3, 4).in_layout("transposed"),
        reference=_reference,
        attrs={"axis": 1},
        tags="strided",
        loose=4.0,
    )
add(
    "cumprod",
    "one_zero",
    values(2.0, 0.0, 3.0, 4.0),
    reference=lambda x, axis: np.cumprod(x),
    attrs={"axis": 0},
)
add(
    "cumprod",
    "two_zeros",
    values(2.0, 0.0, 3.0, 0.0, 5.0),
    reference=lambda x, axis: np.cumprod(x),
    attrs={"axis": 0},
)


def _prod_of_others(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    result = np.empty_like(x)
    for position in np.ndindex(x.shape):
        keep = np.ones(x.shape, bool)
        keep[position] = False
        lines = tuple(slice(None) if a in axes else slice(i, i + 1) for a, i in enumerate(position))
        result[position] = np.prod(x[lines][keep[lines]])
    return result


add("prod_of_others", "matrix", normal(3, 4), reference=_prod_of_others, attrs={"axes": (1,)}, loose=4.0)
add("prod_of_others", "both", normal(2, 3), reference=_prod_of_others, attrs={"axes": (0, 1)}, loose=4.0)
add("prod_of_others", "zeros", values(2.0, 0.0, 3.0), reference=_prod_of_others, attrs={"axes": (0,)})
