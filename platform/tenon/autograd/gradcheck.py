"""Compare gradients with finite differences: ``gradcheck`` and, for second derivatives, ``gradgradcheck``.

Complex values are treated as pairs of reals: the gradient of a real loss L by z = x + iy is dL/dx + i dL/dy.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.autograd.function import Function
from tenon.autograd.gradcheck_jacobians import (
    CheckedFunction,
    Inputs,
    _get_numerical_jacobian,
    _iter_tensors,
    analytical_jacobian,
    differentiable,
    directions,
    flatten,
    forward_mode_jacobian,
    get_analytical_jacobian,
    get_numerical_jacobian,
    numerical_jacobian,
    seeds_of,
    unflatten,
    write_values,
)
from tenon.autograd.gradcheck_tangents import check_batched_tangents, check_undefined_tangents
from tenon.engine.op import table
from tenon.errors import ArgumentError, GradcheckError, OptionError, TenonWarning
from tenon.tensors.autograd.passes import grad
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor

__all__ = [
    "GradcheckError",
    "_get_numerical_jacobian",
    "_iter_tensors",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "gradcheck",
    "gradgradcheck",
]

_NEW_FEATURE = (
    "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it"
    " may break existing callers of this function. If this is true for you, you can call this function with"
    ' "check_undefined_grad=False" to disable the feature'
)


def gradcheck(
    func: CheckedFunction,
    inputs: Tensor | Sequence[Tensor],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of ``func(*inputs)`` with central differences; inputs should be float64.

    ``fast_mode`` compares one random projection of each Jacobian. Returns True if all agree; else raises
    GradcheckError, or returns False without ``raise_exception``.
    """
    if not check_forward_ad and not check_backward_ad:
        raise OptionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise ArgumentError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    if not check_backward_ad and (check_batched_grad or check_grad_dtypes):
        raise ArgumentError(
            "Setting check_batched_grad=True or check_grad_dtypes=True requires check_backward_ad to be True"
        )
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    try:
        _check(
            func, args, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes,
            check_batched_grad, check_batched_forward_grad, fast_mode, check_forward_ad, check_backward_ad,
        )  # fmt: skip
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: CheckedFunction,
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check second derivatives as ``gradcheck`` checks first ones.

    They are those of the gradients with respect to the inputs and ``grad_outputs`` (random if None).
    """
    points = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        random = []
        for out in differentiable(func(*points)):
            noise = rng.standard_normal(tuple(out.shape))
            if out.is_complex():
                noise = noise + 1j * rng.standard_normal(tuple(out.shape))
            if gen_non_contig_grad_outputs and noise.ndim:
                noise = np.repeat(noise, 2, axis=-1)[..., ::2]
            random.append(
                wrap(np.asarray(noise).astype(out.raw.dtype, copy=False), out.device).requires_grad_()
            )
        seeds: tuple[Tensor, ...] = tuple(random)
    else:
        seeds = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)

    active = [isinstance(a, Tensor) and a.requires_grad for a in points + seeds]

    def first_order(*args: Tensor) -> tuple[Tensor, ...]:
        for a, differentiated in zip(args, active, strict=True):  # forward checks pass detached tensors
            if differentiated and not a.requires_grad:
                a.requires_grad_()
        own, vectors = args[: len(points)], args[len(points) :]
        outputs = differentiable(func(*own))
        targets = [a for a in own if isinstance(a, Tensor) and a.requires_grad]
        grads = grad(outputs, targets, vectors, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        first_order,
        points + seeds,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _check(
    func: CheckedFunction, inputs: Inputs, eps: float, atol: float, rtol: float, nondet_tol: float,
    undefined: bool, dtypes: bool, batched: bool, batched_forward: bool, fast: bool, forward: bool,
    backward: bool,
) -> None:  # fmt: skip
    """Raise GradcheckError unless all gradients agree; the arguments are those of ``gradcheck``."""
    active = _active(inputs)
    result = func(*inputs)
    everything = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    outputs = differentiable(result)
    if not outputs:
        _check_constant(func, inputs, active, everything, eps)
        return
    seeds = [seeds_of(o, fast, position) for position, o in enumerate(outputs)]
    targets = [inputs[i] for i in active]

    def compare(kind: str, actual: np.ndarray, expected: np.ndarray, position: int, i: int) -> None:
        scale = seeds[position].sum() * directions(inputs[i], i).sum() if fast else 1.0
        one, other = (_paired(m) if inputs[i].is_complex() else m for m in (actual, expected))
        if not np.allclose(one, other, rtol, atol * scale):
            raise GradcheckError(
                f"{_part_of(outputs[position], actual, expected, fast)}Jacobian {kind}mismatch for output"
                f" {position} with respect to input {i},\n"
                f"numerical:{_printed(expected.T)}\nanalytical:{_printed(actual.T)}\n"
            )

    slopes = []
    for position, output in enumerate(outputs):
        columns = numerical_jacobian(func, inputs, active, position, eps, fast)
        if fast:
            columns = [seeds[position] @ c for c in columns]
        slopes.append(columns)
        if not backward:
            continue
        rows = analytical_jacobian(output, targets, seeds[position], dtypes)
        again = analytical_jacobian(output, targets, seeds[position], dtypes)
        for index, i in enumerate(active):
            actual = rows[index] @ directions(inputs[i], i).T if fast else rows[index]
            compare("", actual, columns[index], position, i)
            if np.abs(rows[index] - again[index]).max(initial=0.0) > nondet_tol:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output"
                    " multiple times gives different values, although analytical gradient matches numerical"
                    f" gradient. The tolerance for nondeterminism was {nondet_tol}."
                )
        if batched:
            _check_batched(output, targets, seeds[position], rows)
    tangents = forward_mode_jacobian(func, inputs, active, outputs, fast) if forward else []
    for (index, i), jacobians in zip(enumerate(active), tangents, strict=False):
        for position, jacobian in enumerate(jacobians):
            actual = seeds[position] @ jacobian if fast else jacobian
            compare("computed with forward mode ", actual, slopes[position][index], position, i)
    if batched_forward:
        check_batched_tangents(func, inputs, active)
    if forward and undefined:
        check_undefined_tangents(func, inputs, active)
    if backward:
        _check_linear(outputs, targets)
        if undefined:
            _check_undefined(func, inputs, targets)


def _paired(jacobian: np.ndarray) -> np.ndarray:
    """Return the columns of real and imaginary parts as complex columns, so that their distances are one."""
    pairs: np.ndarray = jacobian[:, ::2] + 1j * jacobian[:, 1::2]
    return pairs


def _part_of(output: Tensor, actual: np.ndarray, expected: np.ndarray, fast: bool) -> str:
    """Name the part of a complex output that differs, in PyTorch's words."""
    if fast or not output.is_complex():
        return ""
    wrong = np.logical_not(np.isclose(actual, expected).all(axis=1))
    part = "imaginary" if wrong[1::2].any() else "real"
    return f"While considering the {part} part of complex outputs only, "


def _check_batched(
    output: Tensor, targets: Sequence[Tensor], seeds: np.ndarray, rows: list[np.ndarray]
) -> None:
    """Check that batched passes (``is_grads_batched``) return what separate passes return."""
    if not len(seeds):  # an output without elements: no pass to batch
        return
    stacked = table.stack(*[unflatten(seed.copy(), output) for seed in seeds], axis=0)
    grads = grad(output, list(targets), stacked, retain_graph=True, allow_unused=True, is_grads_batched=True)
    for g, expected in zip(grads, rows, strict=True):
        if g is not None and not np.allclose(flatten(g).reshape(expected.shape), expected):
            raise GradcheckError(
                "gradcheck or gradgradcheck failed while testing batched gradient computation."
            )


def _check_linear(outputs: tuple[Tensor, ...], targets: Sequence[Tensor]) -> None:
    """Check that a zero output gradient yields zero input gradients."""
    zero = [unflatten(np.zeros(flatten(o).size), o) for o in outputs]
    for g in grad(outputs, list(targets), zero, retain_graph=True, allow_unused=True):
        if g is not None and flatten(g).any():
            raise GradcheckError("backward not multiplied by grad_output")


def _active(inputs: tuple[object, ...]) -> list[int]:
    """Return the positions of the inputs that require a gradient; ValueError if there are none."""
    tensors = {i: x for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad}
    if not tensors:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have"
            " requires_grad=True."
        )
    for i, x in tensors.items():
        if x.raw.dtype not in (np.dtype(np.float64), np.dtype(np.complex128)):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This"
                " check will likely fail if all the inputs are not of double precision floating point or"
                " complex. ",
                TenonWarning,
                stacklevel=4,
            )
        if any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True)):
            raise ArgumentError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are"
                " non-overlapping to be able to compute the numerical gradients correctly. You should call"
                " .contiguous on the input before passing it to gradcheck."
            )
    return list(tensors)


def _check_constant(
    func: CheckedFunction, inputs: Inputs, active: list[int], outputs: tuple[object, ...], eps: float
) -> None:
    """Check that outputs without a gradient do not depend on the inputs."""
    for position, output in enumerate(outputs):
        if not isinstance(output, Tensor) or output.raw.dtype.kind in "iub":
            continue
        for i in active:
            start = flatten(inputs[i]).copy()
            for step in np.eye(start.size):
                write_values(inputs[i], start + eps * step)
                try:
                    result: Any = func(*inputs)  # a tensor, or a sequence with one at ``position``
                finally:
                    write_values(inputs[i], start)
                high = result[position] if isinstance(result, (tuple, list)) else result
                if not np.array_equal(flatten(high), flatten(output)):
                    raise GradcheckError("Numerical gradient for function expected to be zero")


class _Undefined(Function):
    """Identity whose gradient is undefined."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        """Return a copy of ``x``."""
        return x.clone()

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> None:
        """Return no gradient."""
        return None


def _check_undefined(func: CheckedFunction, inputs: Inputs, targets: Sequence[Tensor]) -> None:
    """Check that a missing gradient of an output equals zeros, for each output in turn and for all."""
    outputs = differentiable(func(*inputs))
    every = set(range(len(outputs)))
    for left_out in [every] + [{p} for p in every if len(every) > 1]:
        ends = [_Undefined.apply(o) if p in left_out else o for p, o in enumerate(outputs)]
        vectors = [unflatten(np.ones(flatten(o).size), o) for o in outputs]
        try:
            partial = grad(ends, list(targets), vectors, retain_graph=True, allow_unused=True)
        except (RuntimeError, TypeError, AttributeError) as error:
            warnings.warn(_NEW_FEATURE, TenonWarning, stacklevel=5)
            raise GradcheckError(
                "Expected backward function to handle undefined output grads. Please look at 'Notes about"
                " undefined output gradients' in 'tools/autograd/derivatives.yaml' (outputs"
                f" {sorted(left_out)} undefined: {error})"
            ) from error
        for p in left_out:
            vectors[p] = unflatten(np.zeros(flatten(outputs[p]).size), outputs[p])
        with_zeros = grad(outputs, list(targets), vectors, retain_graph=True, allow_unused=True)
        for a, b in zip(partial, with_zeros, strict=True):
            x, y = (0.0 if g is None else flatten(g) for g in (a, b))
            if not np.allclose(x, y):
                raise GradcheckError(
                    "Expected all undefined output grads to be treated as zeros, but the gradients differ"
                    f" when outputs {sorted(left_out)} have none."
                )


def _printed(matrix: np.ndarray) -> str:
    """Return the repr of ``matrix`` as a tensor."""
    return repr(wrap(np.ascontiguousarray(matrix), "cpu"))
