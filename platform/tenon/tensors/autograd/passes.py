"""``backward`` and ``grad`` as PyTorch has them: arguments and checks around ``engine/backward.py``."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.compat.rerouting import register
from tenon.engine.backward import accumulate_gradients, collect_gradients
from tenon.engine.op import table
from tenon.engine.operands import flag
from tenon.engine.running_pass import PASS
from tenon.engine.value import Value
from tenon.errors import ArgumentError, GradError, TenonWarning
from tenon.tensors.autograd.nodes import EdgeEnd, GradientEdge, end_of

if TYPE_CHECKING:
    from tenon.tensors.size import Size
    from tenon.tensors.tensor import Tensor

    End: TypeAlias = Value | GradientEdge
    Ends: TypeAlias = End | Iterable[End] | Mapping[str, End]
    Root: TypeAlias = Tensor | EdgeEnd
    Gradients: TypeAlias = Value | Iterable[Value | None] | None

_CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its"
    " gradient which can cause a memory leak. Use autograd.grad for gradients with a graph, or set the .grad"
    " of your parameters to None after use."
)


def backward(
    tensors: Ends,
    grad_tensors: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Ends | None = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into the leaves, or only into ``inputs``
    (torch.autograd.backward).

    ``grad_tensors`` are the gradients of the tensors; they may be None for tensors of one element, whose
    gradient is 1. ``retain_graph`` keeps the graph for another pass, ``create_graph`` also records this one.
    GradError if a tensor does not require grad, or if ``inputs`` is empty.
    """
    if retain_graph is not None and retain_graph.__class__ is not bool:
        retain_graph = _flag("backward", "retain_graph", retain_graph)
    if create_graph.__class__ is not bool:
        create_graph = _flag("backward", "create_graph", create_graph)
    if create_graph:
        warnings.warn(_CYCLE, TenonWarning, stacklevel=3)
    try:
        roots = _sequence(tensors)
        targets = None if inputs is None else _sequence(inputs)
        if targets is not None:
            if not targets:
                raise GradError("`inputs` argument to `backward()` cannot be empty.")
            _check_targets(targets)
        accumulate_gradients(
            roots,
            _gradients(grad_tensors, roots),
            keep_graph=create_graph if retain_graph is None else retain_graph,
            create_graph=create_graph,
            targets=targets,
        )
    except BaseException:
        PASS.queued = ()
        raise


def grad(
    outputs: Ends,
    inputs: Ends,
    grad_outputs: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:  # tensors; None for an unused input, with ``allow_unused``
    """Return the gradients of ``outputs`` with respect to ``inputs``; no ``.grad`` changes
    (torch.autograd.grad).

    ``is_grads_batched``: the first axis of each of ``grad_outputs`` is a batch axis: one pass is run per row,
    and the gradients are stacked along it.
    """
    if retain_graph is not None:
        retain_graph = _flag("grad", "retain_graph", retain_graph)
    if allow_unused is not None:
        allow_unused = _flag("grad", "allow_unused", allow_unused)
    create_graph = _flag("grad", "create_graph", create_graph)
    materialize_grads = _flag("grad", "materialize_grads", materialize_grads)
    if is_grads_batched is not None and _flag("grad", "is_grads_batched", is_grads_batched):
        options = (retain_graph, create_graph, only_inputs, allow_unused, materialize_grads)
        return _batched(outputs, inputs, grad_outputs, *options)
    if allow_unused is False and materialize_grads:
        raise ArgumentError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got:"
            " allow_unused=False."
        )
    roots, targets = _sequence(outputs), _sequence(inputs)
    if not targets:
        raise ArgumentError("grad requires non-empty inputs.")
    _check_targets(targets)
    values = collect_gradients(
        roots,
        _gradients(grad_outputs, roots),
        targets,
        keep_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
    )
    result: list[Any] = []  # tensors and None, which the engine declares as Values
    for position, (target, value) in enumerate(zip(targets, values, strict=True)):
        if value is None and materialize_grads:
            result.append(_zeros(target, create_graph))
        elif value is None and not allow_unused:
            raise GradError(
                f"The differentiated Tensor at index {position} appears to not have been used in the"
                " graph. Set allow_unused=True if this is the desired behavior. (its shape:"
                f" {list(target.raw.shape)})"
            )
        else:
            result.append(value)
    return tuple(result)


def _flag(function: str, name: str, value: object) -> bool:
    """Return the argument ``name`` as a bool; integers are truth values here, as in PyTorch."""
    return bool(value) if isinstance(value, int) else flag(function, name, value)


def _zeros(target: Tensor | EdgeEnd, create_graph: bool) -> Tensor:
    if isinstance(target, EdgeEnd):
        raise GradError(
            "materialize_grads cannot be used when the given input is a GradientEdge that nothing"
            " reached: pass the tensor, or allow_unused=True alone."
        )
    shape, dtype = target.raw.shape, target.raw.dtype
    zeros: Tensor = table.new_full(target.detach(), shape=shape, value=0, dtype=dtype)
    return zeros.requires_grad_(create_graph)


def _batched(
    outputs: Ends,
    inputs: Ends,
    grad_outputs: Gradients,
    retain_graph: bool | None,
    create_graph: bool,
    only_inputs: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Any, ...]:  # tensors; None for an unused input, with ``allow_unused``
    gradients: Sequence[Tensor | None] = [] if grad_outputs is None else _sequence(grad_outputs)
    ends = _sequence(outputs)
    for index, (end, g) in enumerate(zip(ends, gradients, strict=False)):
        if g is not None and (not g.raw.ndim or tuple(g.raw.shape[1:]) != tuple(end.raw.shape)):
            raise GradError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the"
                " batch dimension. The sizes of the remaining dimensions are expected to match the shape of"
                f" corresponding output, but a mismatch was detected: grad_output[{index}] has a shape of"
                f" {g.shape} and output[{index}] has a shape of {end.shape}. If you only want some tensors in"
                " `grad_output` to be considered batched, consider using vmap."
            )
    counts = {g.raw.shape[0] for g in gradients if g is not None}
    if len(counts) != 1 or counts == {0}:
        raise GradError(
            "is_grads_batched=True requires grad_outputs whose first axes have one size, at least 1; got "
            f"{[None if g is None else list(g.raw.shape) for g in gradients]}."
        )
    last = counts.pop() - 1
    keep = create_graph if retain_graph is None else retain_graph
    rows = [
        grad(
            outputs,
            inputs,
            [None if g is None else g[i] for g in gradients],
            keep or i < last,
            create_graph,
            only_inputs,
            allow_unused,
            False,
            materialize_grads,
        )
        for i in range(last + 1)
    ]
    return tuple(None if each[0] is None else table.stack(*each, axis=0) for each in zip(*rows, strict=True))


def _gradients(gradients: Gradients, roots: list[Root]) -> Sequence[Tensor | None]:
    return [None] * len(roots) if gradients is None else _sequence(gradients)


def _sequence(value: Any) -> list[Any]:  # of tensors, EdgeEnds or None, as ``value`` has them
    """Return a list of the tensors, edges or None in ``value``, which is one or a sequence or dict of them.

    Edges are replaced by ``EdgeEnd``s.
    """
    if value.__class__ is list and len(value) == 1 and isinstance(value[0], Value):
        return value
    if isinstance(value, (Value, GradientEdge)) or value is None:
        return [end_of(value)]
    return [end_of(v) for v in (value.values() if isinstance(value, dict) else value)]


def _check_targets(targets: list[Root]) -> None:
    for position, target in enumerate(targets):
        if not isinstance(target, (Value, EdgeEnd)):
            raise GradError(
                f"all inputs have to be Tensors or GradientEdges, but got {type(target).__name__}"
            )
        if not target.requires_grad:
            raise GradError(
                f"One of the differentiated Tensors does not require grad: number {position}, of shape"
                f" {list(target.raw.shape)}. Call requires_grad_() on it before the computation."
            )


def _calculate_shape(output: Tensor, grad: Tensor, is_grads_batched: bool) -> tuple[Size, Size]:
    """The shapes of ``output`` and of ``grad``, the latter without the axis of a batch of gradients."""
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


register("torch.autograd", {"backward": backward, "grad": grad})
