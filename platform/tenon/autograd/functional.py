"""torch.autograd.functional: ``vjp``, ``jvp``, ``jacobian``, ``hessian`` of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TypeAlias

from tenon.autograd.tangent_taping import computing_tangents, taping_tangents
from tenon.engine.op import table
from tenon.errors import GradError, OptionError
from tenon.tensors.autograd.grad_mode import enable_grad
from tenon.tensors.autograd.passes import grad
from tenon.tensors.creation.factories import ones_like, zeros_like
from tenon.tensors.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

#: One tensor or several; results have the form of the inputs or outputs.
Tensors: TypeAlias = Tensor | tuple[Tensor, ...]
#: A Jacobian: of one input and output, of several of either, or of several of both.
JacobianOf: TypeAlias = Tensors | tuple[Tensors, ...]


def _tuple(values: object, name: str, to: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Return whether ``values`` is a tuple, and its tensors; TypeError for anything but tensors."""
    several = isinstance(values, tuple)
    tensors = values if isinstance(values, tuple) else (values,)
    for position, value in enumerate(tensors):
        if not isinstance(value, Tensor):
            which = f"value at index {position}" if several else f"given {name}"
            raise TypeError(
                f"The {name} given to {to} must be either a Tensor or a tuple of Tensors but the {which} has"
                f" type {type(value)}."
            )
    return several, tensors


def _outputs(values: object, to: str, strict: bool) -> tuple[bool, tuple[Tensor, ...]]:
    """Return whether a function returned a tuple, and its outputs; if ``strict`` they must require a
    gradient."""
    many, outputs = _tuple(values, "outputs of the user-provided function", to)
    for number, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise GradError(
                f"Output {number} of the user-provided function does not require gradients. The outputs must"
                " be computed in a differentiable manner from the input when running in strict mode."
            )
    return many, outputs


def _fresh(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Return the inputs to differentiate with respect to: aliases in the graph, or leaves outside of it."""
    if create_graph:
        return tuple(x.view(x.shape) if x.requires_grad else x.detach().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _restored(values: tuple[Tensor, ...], several: bool, create_graph: bool) -> Tensors:
    """Return results as a tuple or a single tensor, detached unless ``create_graph``."""
    values = values if create_graph else tuple(v.detach() for v in values)
    return values if several else values[0]


def _vector(
    v: Tensors | None, like: tuple[Tensor, ...], several: bool, subject: str, to: str
) -> tuple[Tensor, ...]:
    """Return the vector ``v`` as a tuple, by default 1; GradError unless its shapes are those of ``like``."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise GradError(
                f"The vector v can only be None if {subject} a single Tensor with a single element."
            )
        return (ones_like(like[0]),)
    vector = _tuple(v, "v", to)[1]
    if len(vector) != len(like):
        if not several:
            raise GradError("The given v should contain a single Tensor.")
        raise GradError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vector)}.")
    for position, (a, b) in enumerate(zip(vector, like, strict=True)):
        if a.shape != b.shape:
            entry = f"Entry {position} of v" if several else "v"
            raise GradError(f"{entry} has invalid size: should be {b.shape} but got {a.shape}.")
    return vector


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
    message: str = _INDEPENDENT,
) -> tuple[Tensor, ...]:
    """Return gradients, with zeros for inputs that the output does not depend on (an error if ``strict``)."""
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs:
        grads: Sequence[Tensor | None] = (None,) * len(inputs)
    else:
        grads = grad(
            [o for o, _ in pairs],
            inputs,
            [v for _, v in pairs],
            create_graph=create_graph,
            retain_graph=True,
            allow_unused=True,
        )
    if strict and any(g is None for g in grads):
        position = next(i for i, g in enumerate(grads) if g is None)
        raise GradError(message.format(position))
    return tuple(zeros_like(x) if g is None else g for g, x in zip(grads, inputs, strict=True))


def vjp(
    func: Callable[..., Tensors], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:  # fmt: skip
    """Return ``(func(inputs), v @ J)``: the outputs, and the product of ``v`` with the Jacobian
    (torch.autograd.functional.vjp).

    ``inputs`` is a tensor or a tuple of them, ``v`` has the form of the outputs and may be None for a single
    element. With ``create_graph`` the results can be differentiated; with ``strict``, GradError is raised if
    an output does not depend on an input.
    """
    with enable_grad():
        several, points = _tuple(inputs, "inputs", "vjp")
        fresh = _fresh(points, create_graph)
        many, outputs = _outputs(func(*fresh), "vjp", strict)
        vectors = _vector(v, outputs, many, _OUT, "vjp")
        grads = _grads(outputs, fresh, vectors, create_graph, strict)
        if strict and create_graph:
            _need_graph([grads])
    return _restored(outputs, many, create_graph), _restored(grads, several, create_graph)


def jvp(
    func: Callable[..., Tensors], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:  # fmt: skip
    """Return ``(func(inputs), J @ v)``: the outputs, and the product of the Jacobian with ``v``.

    ``v`` has the form of the inputs; other parameters are those of ``vjp``. It is computed by differentiating
    a backward pass with respect to its output gradients.
    """
    with enable_grad():
        several, points = _tuple(inputs, "inputs", "jvp")
        vectors = _vector(v, points, several, _IN, "jvp")
        fresh = _fresh(points, create_graph)
        many, outputs = _outputs(func(*fresh), "jvp", strict)
        seeds = tuple(ones_like(o).requires_grad_() for o in outputs)  # rules may be linear by logarithms
        pulled = _grads(outputs, fresh, seeds, True, strict)
        products = _grads(pulled, seeds, vectors, create_graph)
        if strict and create_graph:
            _need_graph([products])
    return _restored(outputs, many, create_graph), _restored(products, many, create_graph)


def jacobian(
    func: Callable[..., Tensors],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> JacobianOf:
    """Return the Jacobian: for one input and output a tensor of shape ``output.shape + input.shape``.

    For several outputs or inputs it is a tuple per output, and in it a tensor per input. One backward pass
    per element of the output, also with ``vectorize`` and with ``strategy="forward-mode"``.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise OptionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}.'
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError(
            'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not'
            " supported together, as in PyTorch. Leave one of them out."
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
            " `vectorize=True`, as in PyTorch."
        )


_OUTPUT = (
    "Output {output} of the user-provided function is independent of input {}. This is not allowed in strict"
    " mode."
)


def _jacobian(
    func: Callable[..., Tensors],
    inputs: Tensors,
    create_graph: bool,
    strict: bool,
    message: str,
    to: str,
    forward: bool,
) -> JacobianOf:
    """Return the Jacobian; ``message`` is the error if an output is independent of an input, ``to`` the
    caller."""
    with enable_grad():
        several, points = _tuple(inputs, "inputs", to)
        fresh = _fresh(points, create_graph)
        with taping_tangents(fresh) if forward else nullcontext() as taping:
            returned = func(*fresh)
        many, outputs = _outputs(returned, to, strict)
    with enable_grad(), computing_tangents() if forward else nullcontext():
        rows = []
        for number, output in enumerate(outputs):
            flat, own = output.reshape(-1), message.replace("{output}", str(number))
            columns = [
                _grads((flat[i],), fresh, (ones_like(flat[i]),), create_graph, strict, own)
                for i in range(flat.numel())
            ]
            if strict and create_graph:
                _need_graph(columns)
            jacobians = []
            for position, x in enumerate(fresh):
                shape = (*output.shape, *x.shape)
                stacked = [table.reshape(c[position], shape=(1, *x.shape)) for c in columns]
                jacobians.append(
                    table.cat(*stacked, axis=0).reshape(shape) if stacked else zeros_like(x).new_zeros(shape)
                )
            rows.append(_restored(tuple(jacobians), several, create_graph))
    if taping is not None:
        taping.restore()
    return tuple(rows) if many else rows[0]


def _need_graph(columns: list[tuple[Tensor, ...]]) -> None:
    """Raise GradError unless all results require a gradient."""
    for column in columns:
        for position, value in enumerate(column):
            if not value.requires_grad:
                raise GradError(
                    "The jacobian of the user-provided function is independent of input"
                    f" {position}. This is not allowed in strict mode when create_graph=True."
                )


def hessian(
    func: Callable[..., Tensor],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> JacobianOf:
    """Return the Hessian of a scalar function: shape ``input.shape + input.shape``, or tuples of tuples."""
    _check_forward(outer_jacobian_strategy, vectorize)
    if strict and vectorize:
        raise GradError(
            "torch.autograd.functional.hessian: `strict=True` and `vectorize=True` are not supported"
            " together."
        )
    several, _ = _tuple(inputs, "inputs", "hessian")

    def gradient(*values: Tensor) -> Tensors:
        output = _single(func(*values), "hessian", strict)
        flat = output.reshape(())
        grads = _grads((flat,), values, (ones_like(flat),), True, strict, _LINEAR)
        if strict:
            for position, g in enumerate(grads):
                if not g.requires_grad:
                    raise GradError(_LINEAR.format(position))
        return grads if several else grads[0]

    forward = outer_jacobian_strategy == "forward-mode"
    return _jacobian(gradient, inputs, create_graph, strict, _LINEAR, "hessian", forward)


def _single(output: object, name: str, strict: bool) -> Tensor:
    """Return ``output``; GradError unless it is a tensor of one element."""
    _outputs(output, name, strict)
    if not isinstance(output, Tensor):
        raise GradError(f"The function given to {name} should return a single Tensor")
    if output.numel() != 1:
        raise GradError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )
    return output


def vhp(
    func: Callable[..., Tensors], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:  # fmt: skip
    """Return ``(func(inputs), v @ H)``: the value of a scalar function, and ``v`` times its Hessian.

    ``v`` has the form of the inputs; other parameters are those of ``vjp``.
    """
    return _second(func, inputs, v, create_graph, strict, "vhp")


def _second(
    func: Callable[..., Tensors],
    inputs: Tensors,
    v: Tensors | None,
    create_graph: bool,
    strict: bool,
    name: str,
) -> tuple[Tensors, Tensors]:
    """Return the value of a scalar function, and ``v`` times its Hessian."""
    with enable_grad():
        several, points = _tuple(inputs, "inputs", name)
        vectors = _vector(v, points, several, _IN, name)
        fresh = _fresh(points, create_graph)
        output = _single(func(*fresh), name, strict)
        first = _grads((output,), fresh, (ones_like(output),), True, strict)
        product = _grads(first, fresh, vectors, create_graph, strict, _LINEAR)
    return _restored((output,), False, create_graph), _restored(product, several, create_graph)


def hvp(
    func: Callable[..., Tensors], inputs: Tensors, v: Tensors | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensors, Tensors]:  # fmt: skip
    """Return ``(func(inputs), H @ v)`` of a scalar function: the results of ``vhp``, as H is symmetric."""
    return _second(func, inputs, v, create_graph, strict, "hvp")
