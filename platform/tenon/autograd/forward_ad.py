"""torch.autograd.forward_ad: dual tensors, which carry a tangent through a computation.

Ops have no forward-mode rules. A dual tensor has a node of its own on the tape, and ``unpack_dual`` computes
the tangent of a result by differentiating the backward pass with respect to its seed (the transpose of the
vector-Jacobian product is the Jacobian-vector product). The values are those of forward mode; the cost is a
tape, and two backward passes per tangent. The ``jvp`` of a custom Function is called immediately, and its
outputs are duals; without a ``jvp``, its ``backward`` is transposed. ``no_grad`` stops gradients but not
tangents: results of ops on duals are duals there too (``tangent_taping.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from tenon.autograd.tangent_taping import TangentTaping
from tenon.engine.aval import Aval
from tenon.engine.tape import CustomNode, StandIn
from tenon.errors import ArgumentError, GradError
from tenon.tensors.autograd.grad_mode import enable_grad
from tenon.tensors.autograd.nodes import GradientEdge
from tenon.tensors.autograd.passes import grad as differentiate
from tenon.tensors.creation.factories import ones_like, zeros_like
from tenon.tensors.extensions import EXTENSIONS
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.autograd.function_context import FunctionCtx
    from tenon.engine.tape import Node

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class UnpackedDualTensor(NamedTuple):
    """The result of ``unpack_dual``: the primal value, and its tangent or None."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    """State shared by the duals of one level; they become plain tensors when it ends."""

    def __init__(self) -> None:
        self.taping = TangentTaping(lambda value: bool(_duals(value)), _make_dual_without_gradient)


class _State:
    """The active level of this process; at most one, as in PyTorch."""

    level: _Level | None = None


#: The number of the active level; -1 if none.
_current_level = -1


_DUAL = StandIn("make_dual", "MakeDualBackward0")


class _Dual(CustomNode):
    """The node of a dual tensor: passes gradients on to the primal, and is where tangents start."""

    __slots__ = ()

    primal: Tensor
    tangent: Tensor
    level: _Level

    def __init__(self, primal: Tensor, tangent: Tensor, level: _Level) -> None:
        super().__init__(_DUAL, primal._backend, (primal,))
        self.primal, self.tangent, self.level = primal, tangent, level
        self.output_avals = (Aval(tuple(primal.raw.shape), primal.raw.dtype),)

    def apply_tensors(self, grad: Tensor, create_graph: bool) -> list[Tensor]:
        """Return ``grad`` unchanged."""
        return [grad]


def enter_dual_level() -> int:
    """Enter the level in which duals can be made and return its number, 0; levels do not nest."""
    if _State.level is not None:
        raise GradError(
            "Nested forward mode AD is not supported at the moment: leave the level with exit_dual_level(),"
            " or nest func.jvp instead."
        )
    global _current_level
    _State.level, _current_level = _Level(), 0
    _State.level.taping.__enter__()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Exit the level; its duals become plain tensors."""
    if _State.level is None or level not in (None, 0):
        raise GradError("Trying to exit a forward AD level that was not the last one that was created.")
    global _current_level
    _State.level.taping.__exit__()
    _State.level.taping.restore()
    _State.level, _current_level = None, -1


class dual_level:
    """Enter a level within a ``with`` block, which yields its number.

    >>> import tenon
    >>> from tenon.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     x = forward_ad.make_dual(tenon.tensor(3.0), tenon.tensor(1.0))
    ...     forward_ad.unpack_dual(x * x).tangent.item()
    6.0
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a tensor with the memory and history of ``tensor`` that carries ``tangent``, of equal shape."""
    if _State.level is None:
        raise GradError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to"
            " enter_dual_level() first."
        )
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if value.raw.dtype.kind in "iub":
            raise ArgumentError(f"Expected {name} to be floating point or complex, but got: {value.dtype}")
    if tangent.shape != tensor.shape:
        raise GradError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor,"
            f" this is not supported. Tensor is of size {tensor.shape} while the given forward gradient is of"
            f" size {tangent.shape}."
        )
    if _duals(tangent) or _duals(tensor):
        raise GradError(
            "Trying to make a dual of a tensor, or with a tangent, that has a forward gradient at the same"
            " level, which is not supported."
        )
    dual = _alias(tensor)
    own = tangent if _same_layout(tensor, tangent) else tangent.clone()
    dual._node, dual._track = _Dual(tensor, own, _State.level), True
    return dual


def _same_layout(tensor: Tensor, tangent: Tensor) -> bool:
    """Whether both have equal strides and storage sizes, so that the same view applies to both."""
    return bool(
        tensor.raw.strides == tangent.raw.strides
        and tensor.untyped_storage().nbytes() == tangent.untyped_storage().nbytes()
    )


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the value of ``tensor`` and its tangent, which is None unless it depends on duals of this level.

    The value keeps its autograd history only if a gradient could reach a leaf.
    """
    node = tensor.grad_fn
    if isinstance(node, _Dual) and node.level is _State.level:
        return UnpackedDualTensor(node.primal if node.primal._track else _alias(node.primal), node.tangent)
    duals = _duals(tensor)
    if not duals:
        return UnpackedDualTensor(tensor, None)
    keep_graph = _reaches_leaf(tensor) or any(d.tangent.requires_grad for d in duals)
    primal = tensor if keep_graph else _alias(tensor)
    return UnpackedDualTensor(primal, _tangent_from_tape(tensor, duals, keep_graph))


def is_active() -> bool:
    """Whether a level is active, so that tensors may carry tangents."""
    return _State.level is not None


def tangents_of(args: tuple[object, ...]) -> list[Tensor | None] | None:
    """Return the tangent or None of each of ``args``; None if no argument has a tangent."""
    tangents = [unpack_dual(a).tangent if isinstance(a, Tensor) else None for a in args]
    return None if all(t is None for t in tangents) else tangents


def tangents_by_jvp(
    jvp: Callable[..., Tensor | tuple[Tensor | None, ...] | None],
    ctx: FunctionCtx,
    args: tuple[object, ...],
    tangents: list[Tensor | None],
    outputs: tuple[object, ...],
) -> tuple[Tensor | None, ...]:
    """Call ``jvp`` with the ``tangents`` of ``args``; return the tangents of ``outputs``, checked."""
    if ctx.materialize_grads:
        tangents = [
            zeros_like(a.detach()) if t is None and isinstance(a, Tensor) and a.raw.dtype.kind in "fcV" else t
            for t, a in zip(tangents, args, strict=True)
        ]
    before = [0 if t is None or t.is_inference() else t._version for t in tangents]
    ctx._runs_jvp = True
    try:
        result = jvp(ctx, *tangents)
    finally:
        ctx._runs_jvp = False
    results: tuple[Tensor | None, ...] = result if isinstance(result, tuple) else (result,)
    for position, (output, tangent) in enumerate(zip(outputs, results, strict=True)):
        if isinstance(output, Tensor):
            _check_jvp(ctx, args, tangents, before, output, tangent, position)
    return results


def _check_jvp(
    ctx: FunctionCtx,
    args: tuple[Any, ...],  # of ``forward``: tensors, and whatever it takes
    tangents: list[Tensor | None],
    before: list[int],
    output: Tensor,
    tangent: Tensor | None,
    position: int,
) -> None:
    """Raise GradError unless ``tangent`` aliases the inputs' tangents as ``output`` does the inputs."""
    if tangent is None:
        return
    if any(output is t for t in ctx.non_differentiable) or output.raw.dtype.kind in "iub":
        raise GradError(
            f"jvp returned a tangent for output {position}, which has no gradient: it is marked as not"
            f" differentiable, or its dtype is not differentiable ({output.dtype}). You should return None at"
            " that position instead."
        )
    own = next((i for i, a in enumerate(args) if a is output), None)
    if any(output is t for t in ctx.dirty_tensors):
        if own is not None and (tangent is not tangents[own] or tangent._version == before[own]):
            raise GradError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the"
                " forward is modifying an input inplace, then the jvp function must modify the corresponding"
                f" gradient inplace, and return it (output {position})."
            )
        return
    source = own if own is not None else _viewed(args, output)
    input_tangent = None if source is None else tangents[source]
    if source is None or input_tangent is None:
        return
    problem = (
        "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a"
        " view"
    )
    if tangent._base is None:
        raise GradError(f"{problem}. (output {position})")
    if tangent._base is not input_tangent and tangent._base is not input_tangent._base:
        whose = "the same base as" if args[source]._base is not None else "the given"
        raise GradError(f"{problem} of {whose} tangent of input {source}. (output {position})")


def _viewed(args: tuple[object, ...], output: Tensor) -> int | None:
    """Return the index of the argument that ``output`` is a view of, directly or through its base."""
    base = output._base
    if base is None:
        return None
    return next(
        (i for i, a in enumerate(args) if isinstance(a, Tensor) and (base is a or base is a._base)), None
    )


def attach_tangents(outputs: tuple[object, ...], tangents: tuple[Tensor | None, ...]) -> None:
    """Attach tangents to a custom Function's ``outputs``, which makes them duals."""
    assert _State.level is not None
    for output, tangent in zip(outputs, tangents, strict=True):
        if tangent is not None and isinstance(output, Tensor):
            before = _alias(output)
            before._node, before._index, before._track = output._node, output._index, output._track
            output._node, output._index, output._track = _Dual(before, tangent, _State.level), 0, True


def _make_dual_without_gradient(result: Tensor) -> None:
    """Turn a result computed under ``no_grad`` into a dual without gradients; computes its tangent now."""
    duals = _duals(result)
    if duals:
        tangent = _tangent_from_tape(result, duals, False)
        result._node, result._index, result._track = None, 0, False
        attach_tangents((result,), (tangent,))


def _tangent_of(tensor: Tensor) -> Tensor | None:
    """Return the tangent of ``tensor`` or None, for printing."""
    return None if _State.level is None else unpack_dual(tensor).tangent


def _alias(tensor: Tensor) -> Tensor:
    """Return a tensor on the same memory with the same version counter, without history."""
    alias = Tensor._of(tensor.raw, tensor._backend)
    alias._version_counter = tensor._counter()
    return alias


def _tangent_from_tape(tensor: Tensor, duals: list[_Dual], keep_graph: bool) -> Tensor:
    """Return the tangent of ``tensor`` by double backward: its VJP is linear in the seed; transposed, a JVP.

    The duals are leaves meanwhile, since the tangent of a dual includes those of the tensors it depends on.
    """
    edges_before = [d.edges for d in duals]
    for d in duals:
        d.edges = (None,)
    try:
        return _transposed(tensor, duals, keep_graph)
    finally:
        for d, edges in zip(duals, edges_before, strict=True):
            d.edges = edges


def _transposed(tensor: Tensor, duals: list[_Dual], keep_graph: bool) -> Tensor:
    """Return the derivative of the backward pass with respect to its seed, times the tangents of
    ``duals``."""
    with enable_grad():
        seed = ones_like(tensor.detach()).requires_grad_()  # linear rules may be computed via logarithms
        ends = [GradientEdge(d, 0) for d in duals]
        pulled = differentiate([tensor], ends, [seed], create_graph=True, allow_unused=True)
        pairs = [
            (p, d.tangent) for p, d in zip(pulled, duals, strict=True) if p is not None and p.requires_grad
        ]
        if not pairs:
            return zeros_like(tensor.detach())
        (tangent,) = differentiate(
            [p for p, _ in pairs],
            [seed],
            [t for _, t in pairs],
            create_graph=keep_graph,
            materialize_grads=True,
        )
    return tangent if keep_graph else tangent.detach()


def _duals(tensor: Tensor) -> list[_Dual]:
    """Return the duals of the active level that ``tensor`` depends on, not those that duals depend on."""
    return [n for n in _nodes(tensor, _is_dual) if _is_dual(n)]


def _is_dual(node: object) -> TypeGuard[_Dual]:
    return isinstance(node, _Dual) and node.level is _State.level


def _reaches_leaf(tensor: Tensor) -> bool:
    """Whether a gradient of ``tensor`` would reach a leaf."""
    return any(e is not None and e[1] < 0 for n in _nodes(tensor) for e in n.edges)


def _nodes(tensor: Tensor, ends: Callable[[object], bool] = lambda node: False) -> list[Node]:
    """Return all nodes that ``tensor`` depends on, not those past a node for which ``ends`` is true."""
    nodes: dict[int, Node] = {}
    stack = [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and id(node) not in nodes:
            nodes[id(node)] = node
            if not ends(node):
                stack.extend(e[0] for e in node.edges if e is not None and e[1] >= 0)
    return list(nodes.values())


EXTENSIONS.tangent_of = _tangent_of
