"""Jacobians of a function for ``gradcheck``: by central differences, by backward passes, by dual tensors.

Complex numbers are pairs of reals: every Jacobian here is a real matrix over flattened values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenon.autograd import forward_ad
from tenon.dtypes import float64
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, GradcheckError, UnstableOutputError
from tenon.random.generator import Generator
from tenon.tensors.autograd.passes import grad
from tenon.tensors.creation.create import wrap
from tenon.tensors.creation.random_factories import rand
from tenon.tensors.tensor import Tensor

#: The arguments of a function to check: tensors where gradients are compared, elsewhere of any type.
Inputs: TypeAlias = tuple[Any, ...]
#: A function to check: of tensors, returning a tensor or several.
CheckedFunction: TypeAlias = Callable[..., Tensor | Sequence[Tensor]]


def differentiable(result: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors among a function's outputs that require a gradient."""
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return tuple(o for o in outputs if isinstance(o, Tensor) and o.requires_grad)


def flatten(t: Tensor) -> np.ndarray:
    """Return the values of ``t`` as a flat float64 vector; a complex number as two consecutive elements."""
    host = np.ascontiguousarray(t._backend.to_host(t.raw))
    if host.dtype.kind == "c":
        return host.astype(np.complex128).reshape(-1).view(np.float64)
    return host.astype(np.float64).reshape(-1)


def unflatten(values: np.ndarray, like: Tensor) -> Tensor:
    """Return a tensor of the shape and dtype of ``like`` from its values as ``flatten`` returns them."""
    values = values.view(np.complex128) if like.raw.dtype.kind == "c" else values
    return wrap(values.reshape(like.raw.shape).astype(like.raw.dtype), like.device)


def seeds_of(output: Tensor, fast: bool, position: int) -> np.ndarray:
    """Return output gradients as rows: the identity matrix; if ``fast`` one random row of length 1."""
    size = flatten(output).size
    return _random(_generator(100 + position), size)[None] if fast else np.eye(size)


def directions(x: Tensor, position: int) -> np.ndarray:
    """Return a random direction of length 1 as a row, the same in every call; for complex ``x`` two rows, a
    real and an imaginary direction."""
    size, generator = flatten(x).size, _generator(position)
    if not x.is_complex():
        return _random(generator, size)[None]
    rows = np.zeros((2, size))
    rows[0, ::2], rows[1, 1::2] = _random(generator, size // 2), _random(generator, size // 2)
    return rows


def _generator(position: int) -> Generator:
    """Return the generator for input ``position``, the first one seeded as PyTorch's.

    Whether an error exceeds the tolerance depends on the direction.
    """
    generator = Generator()
    return generator.manual_seed(generator.initial_seed() + position)


def _random(generator: Generator, size: int) -> np.ndarray:
    row = flatten(rand(size, generator=generator, dtype=float64))
    return row / max(float(np.linalg.norm(row)), 1e-300)


def forward_mode_jacobian(
    func: CheckedFunction,
    inputs: Sequence[Tensor],
    active: list[int],
    outputs: tuple[Tensor, ...],
    fast: bool,
) -> list[list[np.ndarray]]:
    """Return for each active input the Jacobian of each of ``outputs``, by forward mode.

    One pass computes one column; if ``fast``, the product with a random direction is returned instead.
    """
    jacobians = []
    for i in active:
        steps = list(directions(inputs[i], i) if fast else np.eye(flatten(inputs[i]).size))
        columns: list[list[np.ndarray]] = [[] for _ in outputs]
        for step in steps:
            with forward_ad.dual_level():
                duals = list(inputs)
                for j in active:  # all, as a function may read the tangent of any
                    tangent = step if j == i else np.zeros(flatten(inputs[j]).size)
                    duals[j] = forward_ad.make_dual(inputs[j].detach(), unflatten(tangent, inputs[j]))
                for column, output in zip(columns, differentiable(func(*duals)), strict=True):
                    tangent = forward_ad.unpack_dual(output).tangent
                    column.append(np.zeros(flatten(output).size) if tangent is None else flatten(tangent))
        jacobians.append(
            [
                np.stack(c, axis=1) if c else np.zeros((flatten(o).size, 0))
                for c, o in zip(columns, outputs, strict=True)
            ]
        )
    return jacobians


def _step(func: CheckedFunction, inputs: Sequence[Tensor], position: int, like: Tensor) -> np.ndarray:
    """Return differentiable output ``position`` of perturbed inputs; only its values may differ from
    ``like``.

    Gradients stay enabled, since a function may return other outputs without a graph.
    """
    output = differentiable(func(*inputs))[position]
    for what, now, before in (("shape", output.shape, like.shape), ("dtype", output.dtype, like.dtype)):
        if now != before:
            raise UnstableOutputError(
                f"Expected `func` to return outputs with the same {what} when inputs are perturbed up to eps,"
                f" but got {before} and {now}."
            )
    return flatten(output)


def numerical_jacobian(
    func: CheckedFunction, inputs: Sequence[Tensor], active: list[int], position: int, eps: float, fast: bool
) -> list[np.ndarray]:
    """Return for each active input the Jacobian of one output, by central differences.

    If ``fast``, return the product with a random direction instead.
    """
    jacobians = []
    for i in active:
        x = inputs[i]
        like = differentiable(func(*inputs))[position]
        start = flatten(x).copy()
        steps = list(directions(x, i) if fast else np.eye(start.size))
        columns = []
        for step in steps:
            ends = []
            for sign in (1.0, -1.0):
                write_values(x, start + sign * eps * step)
                try:
                    ends.append(_step(func, inputs, position, like))
                finally:
                    write_values(x, start)
            columns.append((ends[0] - ends[1]) / (2 * eps))
        size = flatten(like).size
        jacobians.append(np.stack(columns, axis=1) if columns else np.zeros((size, 0)))
    return jacobians


def write_values(x: Tensor, values: np.ndarray) -> None:
    """Write values into ``x`` without incrementing its version or recording history."""
    x.raw[...] = unflatten(values, x).raw


def analytical_jacobian(
    output: Tensor, inputs: Sequence[Tensor], seeds: np.ndarray, dtypes: bool
) -> list[np.ndarray]:
    """Return for each input the rows ``seed @ J``, by backward passes; with ``dtypes`` check the
    gradients'."""
    rows: list[list[np.ndarray]] = [[] for _ in inputs]
    for seed in seeds:
        grads = grad(
            output, list(inputs), unflatten(seed.copy(), output), retain_graph=True, allow_unused=True
        )
        for index, (g, x) in enumerate(zip(grads, inputs, strict=True)):
            if g is None:
                rows[index].append(np.zeros(flatten(x).size))
                continue
            if tuple(g.shape) != tuple(x.shape):
                raise GradcheckError(
                    f"Analytical gradient has incorrect size: {list(g.shape)} for an input of {list(x.shape)}"
                )
            if dtypes and g.dtype != x.dtype:
                raise GradcheckError(f"Gradient has dtype mismatch: {g.dtype} for an input of {x.dtype}")
            rows[index].append(flatten(g).copy())
    return [np.stack(r) if r else np.zeros((0, flatten(x).size)) for r, x in zip(rows, inputs, strict=True)]


def _check_deprecated(name: str, grad_out: float, outputs: tuple[Tensor, ...]) -> None:
    """Warn that the function ``name`` is deprecated; ArgumentError for arguments that it does not take."""
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and exists for old code only: use gradcheck, or"
        " func.jacrev to compute the matrix itself.",
        FutureWarning,
        stacklevel=3,
    )
    if grad_out != 1.0 or any(o.is_complex() for o in outputs):
        raise ArgumentError(
            f"Expected grad_out to be 1.0 and the output not to be complex: {name} takes no others. Got"
            f" grad_out={grad_out}."
        )


def get_numerical_jacobian(
    fn: CheckedFunction,
    inputs: Tensor | Sequence[Tensor],
    target: Tensor | Sequence[Tensor] | None = None,
    eps: float = 1e-3,
    grad_out: float = 1.0,
) -> tuple[Tensor, ...]:
    """Deprecated. Return the Jacobians of the first output of ``fn(inputs)`` by central differences.

    They are matrices ``[input, output]`` with respect to ``target``, by default the inputs.
    """
    _check_deprecated("get_numerical_jacobian", grad_out, differentiable(fn(inputs)))
    targets = [t for t in _as_list(inputs if target is None else target) if t.requires_grad]
    jacobians = numerical_jacobian(
        lambda *args: fn(inputs), targets, list(range(len(targets))), 0, eps, False
    )
    return tuple(_matrix(rows, like) for rows, like in zip(jacobians, targets, strict=True))


def get_analytical_jacobian(
    inputs: Tensor | Sequence[Tensor], output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Deprecated. Return the Jacobians ``[input, output]`` of ``output`` by backward passes, and three bools.

    They state whether two passes agree within ``nondet_tol``, and whether sizes and dtypes are those of the
    inputs: always True, as GradcheckError is raised otherwise.
    """
    _check_deprecated("get_analytical_jacobian", grad_out, (output,))
    targets = [t for t in _as_list(inputs) if t.requires_grad]
    first, again = (analytical_jacobian(output, targets, seeds_of(output, False, 0), True) for _ in range(2))
    agreed = all(np.abs(a - b).max(initial=0.0) <= nondet_tol for a, b in zip(first, again, strict=True))
    return (
        tuple(_matrix(rows, like) for rows, like in zip(first, targets, strict=True)),
        agreed,
        True,
        True,
    )


def _iter_tensors(x: Nested, only_requiring_grad: bool = False) -> Iterator[Tensor]:
    """Yield the tensors in nested sequences, or only those that require a gradient."""
    if isinstance(x, Tensor):
        if x.requires_grad or not only_requiring_grad:
            yield x
    elif isinstance(x, Iterable) and not isinstance(x, str):
        for each in x:
            yield from _iter_tensors(each, only_requiring_grad)


def _get_numerical_jacobian(
    fn: Callable[..., Nested],
    inputs: Nested,
    outputs: object = None,
    target: Nested = None,
    eps: float = 1e-3,
    is_forward_ad: bool = False,
) -> list[tuple[Tensor, ...]]:
    """Return the Jacobians ``[input, output]`` of the outputs of ``fn(*inputs)``; PyTorch's tests use it.

    One tuple for each tensor of ``target`` (by default ``inputs``) that requires a gradient.
    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    targets = list(_iter_tensors(inputs if target is None else target, True))

    def run(*_: Tensor) -> tuple[Tensor, ...]:  # the outputs need no history of their own
        outputs = (o for o in _iter_tensors(fn(*args)) if o.is_floating_point() or o.is_complex())
        return tuple(o.detach().requires_grad_() for o in outputs)

    results = run()
    if not is_forward_ad and any(o.is_complex() for o in results):
        raise ArgumentError("Expected output to be non-complex, as the steps of finite differences are real.")
    active = list(range(len(targets)))
    rows = [numerical_jacobian(run, targets, active, k, eps, False) for k in range(len(results))]
    return [tuple(_matrix(rows[k][i], targets[i]) for k in range(len(results))) for i in active]


def _as_list(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _matrix(rows: np.ndarray, like: Tensor) -> Tensor:
    return wrap(np.ascontiguousarray(rows.T).astype(like.raw.dtype), like.device)
