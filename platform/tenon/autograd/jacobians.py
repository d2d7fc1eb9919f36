"""Jacobians of a function for ``gradcheck``: by central differences, by backward passes, by dual tensors.

Complex numbers are pairs of reals: every Jacobian here is a real matrix of ``parts``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tenon.autograd import forward_ad
from tenon.dtypes import float64
from tenon.errors import ArgumentError, GradcheckError, UnstableOutputError
from tenon.random.generator import Generator
from tenon.tensors.autograd.passes import grad
from tenon.tensors.creation.create import wrap
from tenon.tensors.creation.draws import rand
from tenon.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]


def differentiable(result: Tensor | Sequence[Tensor]) -> tuple[Any, ...]:
    """The differentiable tensors among a function's outputs."""
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return tuple(o for o in outputs if isinstance(o, Tensor) and o.requires_grad)


def parts(t: Tensor) -> Array:
    """``t``'s values as a flat float64 vector; complex numbers as two neighbours."""
    host = np.ascontiguousarray(t._backend.to_host(t.raw))
    if host.dtype.kind == "c":
        return host.astype(np.complex128).reshape(-1).view(np.float64)
    return host.astype(np.float64).reshape(-1)


def joined(values: Array, like: Tensor) -> Tensor:
    """The reverse of ``parts``: a tensor of ``like``'s shape and dtype."""
    values = values.view(np.complex128) if like.raw.dtype.kind == "c" else values
    return wrap(values.reshape(like.raw.shape).astype(like.raw.dtype), like.device)


def seeds_of(output: Tensor, fast: bool, position: int) -> Array:
    """Rows to pull back: the identity, or one random row of length 1."""
    size = parts(output).size
    return _random(_generator(100 + position), size)[None] if fast else np.eye(size)


def directions(x: Tensor, position: int) -> Array:
    """A random step of length 1 as a row, the same at every call; a real and an imaginary one for complex
    ``x``."""
    size, generator = parts(x).size, _generator(position)
    if not x.is_complex():
        return _random(generator, size)[None]
    made = np.zeros((2, size))
    made[0, ::2], made[1, 1::2] = _random(generator, size // 2), _random(generator, size // 2)
    return made


def _generator(position: int) -> Generator:
    """Of its own for each position, the first as torch's: how large an error along a direction is depends on
    where it points."""
    generator = Generator()
    return generator.manual_seed(generator.initial_seed() + position)


def _random(generator: Generator, size: int) -> Array:
    found: Array = parts(rand(size, generator=generator, dtype=float64))
    return found / max(float(np.linalg.norm(found)), 1e-300)


def tangents(
    func: Any, inputs: Sequence[Tensor], active: list[int], outputs: tuple[Any, ...], fast: bool
) -> list[list[Array]]:
    """Per active input the Jacobian of each of ``outputs``, one dual a column, or its products with random
    directions."""
    found = []
    for i in active:
        steps = list(directions(inputs[i], i) if fast else np.eye(parts(inputs[i]).size))
        columns: list[list[Array]] = [[] for _ in outputs]
        for step in steps:
            with forward_ad.dual_level():
                duals = list(inputs)
                for j in active:  # all, as a function may ask any of them for its tangent
                    tangent = step if j == i else np.zeros(parts(inputs[j]).size)
                    duals[j] = forward_ad.make_dual(inputs[j].detach(), joined(tangent, inputs[j]))
                made = differentiable(func(*duals))
                for column, output in zip(columns, made, strict=True):
                    pushed = forward_ad.unpack_dual(output).tangent
                    column.append(np.zeros(parts(output).size) if pushed is None else parts(pushed))
        found.append(
            [
                np.stack(c, axis=1) if c else np.zeros((parts(o).size, 0))
                for c, o in zip(columns, outputs, strict=True)
            ]
        )
    return found


def _step(func: Any, inputs: tuple[Any, ...], position: int, like: Any) -> Array:
    """Differentiable output ``position`` of inputs that moved a little: only values may differ from ``like``.

    Taped, since a function may return other outputs without a graph.
    """
    found = differentiable(func(*inputs))[position]
    for what, now, before in (("shape", found.shape, like.shape), ("dtype", found.dtype, like.dtype)):
        if now != before:
            raise UnstableOutputError(
                f"Expected `func` to return outputs with the same {what} when inputs are perturbed up to eps,"
                f" but got {before} and {now}."
            )
    return parts(found)


def numerical(
    func: Any, inputs: Any, active: list[int], position: int, eps: float, fast: bool
) -> list[Array]:
    """Per active input the Jacobian of one output, or its products with random directions."""
    found = []
    for i in active:
        x = inputs[i]
        like = differentiable(func(*inputs))[position]
        start = parts(x).copy()
        steps = list(directions(x, i) if fast else np.eye(start.size))
        columns = []
        for step in steps:
            ends = []
            for sign in (1.0, -1.0):
                put(x, start + sign * eps * step)
                try:
                    ends.append(_step(func, inputs, position, like))
                finally:
                    put(x, start)
            columns.append((ends[0] - ends[1]) / (2 * eps))
        size = parts(like).size
        found.append(np.stack(columns, axis=1) if columns else np.zeros((size, 0)))
    return found


def put(x: Tensor, values: Array) -> None:
    """Write values without autograd seeing it: no version count, no history."""
    x.raw[...] = joined(values, x).raw


def analytical(output: Tensor, wanted: Sequence[Any], seeds: Array, dtypes: bool) -> list[Array]:
    """Per input the rows ``seed @ J``."""
    rows: list[list[Array]] = [[] for _ in wanted]
    for seed in seeds:
        found = grad(output, list(wanted), joined(seed.copy(), output), retain_graph=True, allow_unused=True)
        for place, (g, x) in enumerate(zip(found, wanted, strict=True)):
            if g is None:
                rows[place].append(np.zeros(parts(x).size))
                continue
            if tuple(g.shape) != tuple(x.shape):
                raise GradcheckError(
                    f"Analytical gradient has incorrect size: {list(g.shape)} for an input of {list(x.shape)}"
                )
            if dtypes and g.dtype != x.dtype:
                raise GradcheckError("Gradient has dtype mismatch")
            rows[place].append(parts(g).copy())
    return [np.stack(r) if r else np.zeros((0, parts(x).size)) for r, x in zip(rows, wanted, strict=True)]


def _as_before(name: str, grad_out: float, outputs: tuple[Any, ...]) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and is kept for old code only: use gradcheck, or"
        " func.jacrev where the matrix itself is wanted.",
        FutureWarning,
        stacklevel=3,
    )
    if grad_out != 1.0 or any(o.is_complex() for o in outputs):
        raise ArgumentError(
            f"Expected grad_out to be 1.0 and the output not to be complex: {name} takes no others. Got"
            f" grad_out={grad_out}."
        )


def get_numerical_jacobian(
    fn: Callable[[Any], Any], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Any, ...]:
    """Deprecated: the Jacobians ``[input, output]`` of the first output of ``fn(inputs)`` by its inputs, or
    by ``target``, from central differences."""
    _as_before("get_numerical_jacobian", grad_out, differentiable(fn(inputs)))
    moved = [t for t in _listed(inputs if target is None else target) if t.requires_grad]
    found = numerical(lambda *args: fn(inputs), moved, list(range(len(moved))), 0, eps, False)
    return tuple(_matrix(rows, like) for rows, like in zip(found, moved, strict=True))


def get_analytical_jacobian(
    inputs: Any, output: Any, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Any, ...], bool, bool, bool]:
    """Deprecated: the Jacobians ``[input, output]`` of ``output`` from backward passes; whether two passes
    agreed within ``nondet_tol``; and whether sizes and dtypes are the inputs', which is checked at once."""
    _as_before("get_analytical_jacobian", grad_out, (output,))
    moved = [t for t in _listed(inputs) if t.requires_grad]
    first, again = (analytical(output, moved, seeds_of(output, False, 0), True) for _ in range(2))
    agreed = all(np.abs(a - b).max(initial=0.0) <= nondet_tol for a, b in zip(first, again, strict=True))
    return tuple(_matrix(rows, like) for rows, like in zip(first, moved, strict=True)), agreed, True, True


def _iter_tensors(x: Any, only_requiring_grad: bool = False) -> Iterator[Any]:
    """The tensors in nested sequences, or those that require gradients."""
    if isinstance(x, Tensor):
        if x.requires_grad or not only_requiring_grad:
            yield x
    elif isinstance(x, Iterable) and not isinstance(x, str):
        for each in x:
            yield from _iter_tensors(each, only_requiring_grad)


def _get_numerical_jacobian(
    fn: Callable[..., Any],
    inputs: Any,
    outputs: Any = None,
    target: Any = None,
    eps: float = 1e-3,
    is_forward_ad: bool = False,
) -> list[tuple[Any, ...]]:
    """Per tensor of ``target`` (or ``inputs``) that requires gradients the Jacobians ``[input, output]`` of
    the outputs of ``fn(*inputs)`` by it; PyTorch's tests of modules ask for them."""
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    moved = list(_iter_tensors(inputs if target is None else target, True))

    def run(*_: Any) -> tuple[Any, ...]:  # the outputs need no history of their own
        kinds = (o for o in _iter_tensors(fn(*given)) if o.is_floating_point() or o.is_complex())
        return tuple(o.detach().requires_grad_() for o in kinds)

    found = run()
    if not is_forward_ad and any(o.is_complex() for o in found):
        raise ArgumentError("Expected output to be non-complex, as numbers that are moved are real.")
    active = list(range(len(moved)))
    rows = [numerical(run, moved, active, k, eps, False) for k in range(len(found))]
    return [tuple(_matrix(rows[k][i], moved[i]) for k in range(len(found))) for i in active]


def _listed(tensors: Tensor | Sequence[Tensor]) -> list[Any]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _matrix(rows: Array, like: Tensor) -> Tensor:
    return wrap(np.ascontiguousarray(rows.T).astype(like.raw.dtype), like.device)
