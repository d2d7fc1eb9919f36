"""torch.autograd.functional: ``vjp``, ``jvp``, ``jacobian``, ``hessian`` of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from tenon.autograd.onward import going_on, pushing
from tenon.engine.op import table
from tenon.errors import GradError, OptionError
from tenon.tensors.autograd.grad_mode import enable_grad
from tenon.tensors.autograd.passes import grad
from tenon.tensors.creation.factories import ones_like, zeros_like
from tenon.tensors.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(values: Any, name: str, to: str) -> tuple[bool, tuple[Any, ...]]:
    """Whether ``values`` is a tuple, and its tensors as a tuple; TypeError for anything but tensors."""
    several = isinstance(values, tuple)
    found = values if isinstance(values, tuple) else (values,)
    for position, value in enumerate(found):
        if not isinstance(value, Tensor):
            which = f"value at index {position}" if several else f"given {name}"
            raise TypeError(
                f"The {name} given to {to} must be either a Tensor or a tuple of Tensors but the {which} has"
                f" type {type(value)}."
            )
    return several, found


def _outputs(values: Any, to: str, strict: bool) -> tuple[bool, tuple[Any, ...]]:
    many, found = _tuple(values, "outputs of the user-provided function", to)
    for number, output in enumerate(found):
        if strict and not output.requires_grad:
            raise GradError(
                f"Output {number} of the user-provided function does not require gradients. The outputs must"
                " be computed in a differentiable manner from the input when running in strict mode."
            )
    return many, found


def _fresh(inputs: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """Inputs to differentiate with respect to: aliases in the graph, or leaves outside of it."""
    if create_graph:
        return tuple(x.view(x.shape) if x.requires_grad else x.detach().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _restored(values: tuple[Any, ...], several: bool, create_graph: bool) -> Tensor | tuple[Tensor, ...]:
    values = values if create_graph else tuple(v.detach() for v in values)
    return values if several else values[0]


def _vector(
    v: Tensor | Sequence[Tensor] | None, like: tuple[Any, ...], several: bool, what: str, to: str
) -> tuple[Any, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise GradError(f"The vector v can only be None if {what} a single Tensor with a single element.")
        return (ones_like(like[0]),)
    found = _tuple(v, "v", to)[1]
    if len(found) != len(like):
        if not several:
            raise GradError("The given v should contain a single Tensor.")
        raise GradError(f"v is a tuple of invalid length: should be {len(like)} but got {len(found)}.")
    for position, (a, b) in enumerate(zip(found, like, strict=True)):
        if a.shape != b.shape:
            entry = f"Entry {position} of v" if several else "v"
            raise GradError(f"{entry} has invalid size: should be {b.shape} but got {a.shape}.")
    return found


_INDEPENDENT = (
    "The output of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
_LINEAR = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input"
    " {} is independent of the input. This is not allowed in strict mode. You should ensure that your"
    " function is twice differentiable and that the jacobian depends on the inputs, as that of a linear"
    " function does not."
)
_IN, _OUT = "the input to the user-provided function is", "the user-provided function returns"


def _grads(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    vectors: Sequence[Tensor],
    create_graph: bool,
    strict: bool = False,
    words: str = _INDEPENDENT,
) -> tuple[Any, ...]:
    """Gradients, with zeros for inputs that the output does not depend on (an error if ``strict``)."""
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs:
        found: tuple[Any, ...] = (None,) * len(inputs)
    else:
        found = grad(
            [o for o, _ in pairs],
            inputs,
            [v for _, v in pairs],
            create_graph=create_graph,
            retain_graph=True,
            allow_unused=True,
        )
    if strict and any(g is None for g in found):
        position = next(i for i, g in enumerate(found) if g is None)
        raise GradError(words.format(position))
    return tuple(zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))


def vjp(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    v: Tensor | Sequence[Tensor] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """``(func(inputs), v @ J)``: the outputs, and the product of ``v`` with the Jacobian."""
    with enable_grad():
        several, given = _tuple(inputs, "inputs", "vjp")
        fresh = _fresh(given, create_graph)
        many, outputs = _outputs(func(*fresh), "vjp", strict)
        vectors = _vector(v, outputs, many, _OUT, "vjp")
        found = _grads(outputs, fresh, vectors, create_graph, strict)
        if strict and create_graph:
            _need_graph([found])
    return _restored(outputs, many, create_graph), _restored(found, several, create_graph)


def jvp(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    v: Tensor | Sequence[Tensor] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """``(func(inputs), J @ v)``, by differentiating the gradient with respect to its own seed."""
    with enable_grad():
        several, given = _tuple(inputs, "inputs", "jvp")
        vectors = _vector(v, given, several, _IN, "jvp")
        fresh = _fresh(given, create_graph)
        many, outputs = _outputs(func(*fresh), "jvp", strict)
        seeds = tuple(ones_like(o).requires_grad_() for o in outputs)  # rules may be linear by logarithms
        pulled = _grads(outputs, fresh, seeds, True, strict)
        found = _grads(pulled, seeds, vectors, create_graph)
        if strict and create_graph:
            _need_graph([found])
    return _restored(outputs, many, create_graph), _restored(found, many, create_graph)


def jacobian(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """d func / d inputs: for one input and output a tensor of shape ``output + input``, else tuples of them.

    One backward pass a number of the output, also with ``vectorize`` and with ``strategy="forward-mode"``.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise OptionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}.'
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError(
            'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not'
            " supported together, as in torch. Leave one of them out."
        )
    _check_forward(strategy, vectorize)
    if strict and vectorize:
        raise GradError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported"
            " together. Please either set `strict=False` or `vectorize=False`."
        )
    return _jacobian(func, inputs, create_graph, strict, _OUTPUT, "jacobian", strategy == "forward-mode")


def _check_forward(strategy: str, vectorize: bool) -> None:
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only supported when"
            " `vectorize=True`, as in torch."
        )


_OUTPUT = (
    "Output {output} of the user-provided function is independent of input {}. This is not allowed in strict"
    " mode."
)


def _jacobian(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    create_graph: bool,
    strict: bool,
    words: str,
    to: str,
    forward: bool,
) -> Any:
    with enable_grad():
        several, given = _tuple(inputs, "inputs", to)
        fresh = _fresh(given, create_graph)
        with going_on(fresh) if forward else nullcontext() as onward:
            returned = func(*fresh)
        many, outputs = _outputs(returned, to, strict)
    with enable_grad(), pushing() if forward else nullcontext():
        rows = []
        for number, output in enumerate(outputs):
            flat, message = output.reshape(-1), words.replace("{output}", str(number))
            columns = [
                _grads((flat[i],), fresh, (ones_like(flat[i]),), create_graph, strict, message)
                for i in range(flat.numel())
            ]
            if strict and create_graph:
                _need_graph(columns)
            made = []
            for position, x in enumerate(fresh):
                shape = (*output.shape, *x.shape)
                stacked = [table.reshape(c[position], shape=(1, *x.shape)) for c in columns]
                made.append(
                    table.cat(*stacked, axis=0).reshape(shape) if stacked else zeros_like(x).new_zeros(shape)
                )
            rows.append(_restored(tuple(made), several, create_graph))
    if onward is not None:
        onward.restore()
    return tuple(rows) if many else rows[0]


def _need_graph(columns: list[tuple[Any, ...]]) -> None:
    for column in columns:
        for position, value in enumerate(column):
            if not value.requires_grad:
                raise GradError(
                    "The jacobian of the user-provided function is independent of input"
                    f" {position}. This is not allowed in strict mode when create_graph=True."
                )


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Second derivatives of a scalar function: shape ``input + input``, or tuples of tuples of them."""
    _check_forward(outer_jacobian_strategy, vectorize)
    if strict and vectorize:
        raise GradError(
            "torch.autograd.functional.hessian: `strict=True` and `vectorize=True` are not supported"
            " together."
        )
    several, _ = _tuple(inputs, "inputs", "hessian")

    def gradient(*values: Tensor) -> Tensor | tuple[Tensor, ...]:
        output = _single(func(*values), "hessian", strict)
        flat = output.reshape(())
        found = _grads((flat,), values, (ones_like(flat),), True, strict, _LINEAR)
        if strict:
            for position, g in enumerate(found):
                if not g.requires_grad:
                    raise GradError(_LINEAR.format(position))
        return found if several else found[0]

    forward = outer_jacobian_strategy == "forward-mode"
    return _jacobian(gradient, inputs, create_graph, strict, _LINEAR, "hessian", forward)


def _single(output: Tensor, name: str, strict: bool) -> Tensor:
    """Return ``output``; an error unless it is a tensor of one element."""
    _outputs(output, name, strict)
    if not isinstance(output, Tensor):
        raise GradError(f"The function given to {name} should return a single Tensor")
    if output.numel() != 1:
        raise GradError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )
    return output


def vhp(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    v: Tensor | Sequence[Tensor] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """``(func(inputs), v @ H)`` of a scalar function."""
    return _second(func, inputs, v, create_graph, strict, "vhp")


def _second(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool, name: str
) -> Any:
    with enable_grad():
        several, given = _tuple(inputs, "inputs", name)
        vectors = _vector(v, given, several, _IN, name)
        fresh = _fresh(given, create_graph)
        output = _single(func(*fresh), name, strict)
        first = _grads((output,), fresh, (ones_like(output),), True, strict)
        found = _grads(first, fresh, vectors, create_graph, strict, _LINEAR)
    return _restored((output,), False, create_graph), _restored(found, several, create_graph)


def hvp(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    v: Tensor | Sequence[Tensor] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> Any:
    """``(func(inputs), H @ v)`` of a scalar function; as the Hessian is symmetric, the same numbers as
    ``vhp``."""
    return _second(func, inputs, v, create_graph, strict, "hvp")
