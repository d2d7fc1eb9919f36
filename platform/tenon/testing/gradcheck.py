"""Compare gradients of ops with finite differences along a random direction, ``<u, J v>``.

A wrong term in the rule of any input changes this number, so two evaluations check all inputs at once. The
second order does the same with the first-order gradient, as a function of the inputs and of the gradient of
the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tenon.device import DeviceLike
from tenon.engine.types import Operand
from tenon.tensors.autograd.passes import grad
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor
from tenon.testing.assertions import as_tuple, host

#: Gradients at arrays, for the gradients of the outputs that require grad.
Gradients = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], list[np.ndarray]]
STEP = 1e-6


def check_gradients(
    function: Callable[..., Operand],
    arrays: Sequence[Operand],
    attrs: Mapping[str, object] | None = None,
    *,
    active: Sequence[int] | None = None,
    order: int = 2,
    tolerance: float = 1e-6,
    device: DeviceLike = "cpu",
    outputs: int = 0,
) -> None:
    """Raise AssertionError unless the gradients of ``function(*arrays, **attrs)`` up to ``order`` agree with
    finite differences.

    ``arrays`` are host arrays (floating ones in float64) or numbers; ``active`` are the positions of those
    whose gradients are checked, ``outputs`` is how many of the outputs are checked (0: all).
    """
    active_indices = (
        tuple(active) if active is not None else tuple(i for i, a in enumerate(arrays) if _floating(a))
    )
    if not active_indices:
        return
    options = dict(attrs or {})
    if outputs:
        all_outputs = function
        function = lambda *a, **k: as_tuple(all_outputs(*a, **k))[:outputs]  # noqa: E731

    def values(moved: Sequence[np.ndarray]) -> list[Tensor]:
        """Return the outputs that require grad, with the active inputs at ``moved``."""
        return [
            o for o in _call(function, arrays, options, active_indices, moved, device)[1] if o.requires_grad
        ]

    start = [np.array(arrays[i]) for i in active_indices]
    seeds = [_noise(o, 50 + n) for n, o in enumerate(values(start))]
    if not seeds:
        return

    def projected(moved: Sequence[np.ndarray]) -> float:
        return float(sum(np.vdot(s, host(o)) for s, o in zip(seeds, values(moved), strict=True)))

    def gradients(moved: Sequence[np.ndarray], vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
        leaves, outputs = _call(function, arrays, options, active_indices, moved, device)
        outputs = tuple(o for o in outputs if o.requires_grad)
        given = [wrap(v.copy(), device) for v in vectors]
        grads = grad(outputs, leaves, given, allow_unused=True)
        changed = any(
            not np.array_equal(host(g), v, equal_nan=True) for g, v in zip(given, vectors, strict=True)
        )
        assert not changed, "a gradient rule writes into the gradient that it gets"
        return [np.zeros_like(m) if g is None else host(g) for g, m in zip(grads, moved, strict=True)]

    _compare("first", projected, gradients(start, seeds), start, tolerance)
    if order >= 2:
        _second(function, arrays, options, active_indices, start, seeds, gradients, tolerance, device)


def _second(
    function: Callable[..., Operand],
    arrays: Sequence[Operand],
    options: Mapping[str, object],
    active_indices: Sequence[int],
    start: Sequence[np.ndarray],
    seeds: Sequence[np.ndarray],
    gradients: Gradients,
    tolerance: float,
    device: DeviceLike,
) -> None:
    weights = [_noise_like(s, 80 + n) for n, s in enumerate(start)]
    count = len(start)

    def projected(moved: Sequence[np.ndarray]) -> float:
        grads = gradients(moved[:count], moved[count:])
        return float(sum(np.vdot(w, g) for w, g in zip(weights, grads, strict=True)))

    leaves, outputs = _call(function, arrays, options, active_indices, start, device)
    vectors = [wrap(s.copy(), device).requires_grad_() for s in seeds]
    outputs = tuple(o for o in outputs if o.requires_grad)
    first = grad(outputs, leaves, vectors, create_graph=True, allow_unused=True)
    pairs = [
        (g, wrap(w, device)) for g, w in zip(first, weights, strict=True) if g is not None and g.requires_grad
    ]
    variables = [*start, *seeds]
    if not pairs:
        analytic = [np.zeros_like(e) for e in variables]
    else:
        grads = grad([g for g, _ in pairs], [*leaves, *vectors], [w for _, w in pairs], allow_unused=True)
        analytic = [np.zeros_like(e) if g is None else host(g) for g, e in zip(grads, variables, strict=True)]
    _compare("second", projected, analytic, variables, tolerance * 10)


def _compare(
    which: str,
    projected: Callable[[Sequence[np.ndarray]], float],
    analytic: Sequence[np.ndarray],
    start: Sequence[np.ndarray],
    tolerance: float,
) -> None:
    direction = [_noise_like(s, 30 + n) for n, s in enumerate(start)]
    ends = [
        projected([s + sign * STEP * u for s, u in zip(start, direction, strict=True)])
        for sign in (1.0, -1.0)
    ]
    numeric = (ends[0] - ends[1]) / (2 * STEP)
    exact = float(sum(np.vdot(u, g) for u, g in zip(direction, analytic, strict=True)))
    scale = max(1.0, abs(numeric), sum(float(np.abs(g).sum()) for g in analytic))
    assert abs(numeric - exact) <= tolerance * scale, (
        f"{which}-order gradient: {exact!r} along a random direction, differences give {numeric!r} (scale"
        f" {scale:.3g})"
    )


def _call(
    function: Callable[..., Operand],
    arrays: Sequence[Operand],
    options: Mapping[str, object],
    active_indices: Sequence[int],
    moved: Sequence[np.ndarray],
    device: DeviceLike,
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Return the leaves, and the outputs of ``function`` with the active inputs at ``moved``."""
    arguments = [wrap(np.array(a), device) if isinstance(a, np.ndarray) else a for a in arrays]
    leaves = []
    for i, value in zip(active_indices, moved, strict=True):
        leaf = wrap(np.array(value), device).requires_grad_()
        leaves.append(leaf)
        arguments[i] = leaf
    return leaves, as_tuple(function(*arguments, **options))


def _floating(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def _noise(t: Tensor, seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(tuple(t.shape)))


def _noise_like(a: np.ndarray, seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(a.shape))
