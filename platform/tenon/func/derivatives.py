"""``func.grad``, ``vjp``, ``jvp``, ``jacrev``, ``jacfwd``, ``hessian``: derivatives of functions of nested
tensors.

All are made of backward passes. A result keeps its own graph where something outside could ask for it: the
inputs, or a tensor that the function captured, require a gradient. So the transforms nest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

from tenon.autograd.onward import going_on, pushing
from tenon.engine.op import table
from tenon.errors import ArgumentError, GradError
from tenon.tensors.autograd.grad_mode import enable_grad, is_grad_enabled
from tenon.tensors.autograd.passes import grad as differentiate
from tenon.tensors.creation.factories import ones_like, zeros_like
from tenon.tensors.pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from tenon.tensors.tensor import Tensor

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]

Argnums = int | tuple[int, ...]


def _positions(argnums: Argnums, count: int) -> list[int]:
    given = argnums if isinstance(argnums, tuple) else (argnums,)
    for position in given:
        if not -count <= position < count:
            raise ArgumentError(f"Got argnum={position}, but only {count} positional inputs")
    found = [position % count for position in given]
    if not found or len(set(found)) < len(found):
        raise ArgumentError(f"argnums elements must be unique, got {argnums}")
    return found


#: On a leaf that a transform made: whether that transform is still at work, so that others inside it have to
#: keep their graph.
_OWN, _DONE = "_of_transform", "done"


def _own(value: Tensor) -> Tensor:
    leaf = value.detach().requires_grad_()
    leaf.__dict__[_OWN] = "at work"
    return leaf


def _asks(leaf: Tensor) -> bool:
    """Whether somebody may still want the gradient of ``leaf``."""
    return bool(leaf.__dict__.get(_OWN) != _DONE)


class _Run:
    """One call of a function: its inputs as fresh leaves (or aliases of what is tracked), and its outputs."""

    def __init__(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        chosen: list[int],
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        forward: bool = False,
    ) -> None:
        self.forward = forward
        self.taped = is_grad_enabled()
        leaves, self.spec = tree_flatten([args[i] for i in chosen])
        for leaf in leaves:
            if not isinstance(leaf, Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
                shown = leaf.dtype if isinstance(leaf, Tensor) else type(leaf)
                raise GradError(f"only Tensors of floating point dtype can require gradients, got {shown}")
        with enable_grad():
            self.leaves = [
                table.alias(leaf) if self.taped and leaf.requires_grad else _own(leaf) for leaf in leaves
            ]
            fresh = list(args)
            for i, value in zip(chosen, tree_unflatten(self.leaves, self.spec), strict=True):
                fresh[i] = value
            with going_on(self.leaves) if forward else nullcontext() as self.onward:
                self.output = func(*fresh, **kwargs)
        outer = any(leaf.requires_grad for leaf in leaves)
        self.watched = self.taped and (outer or self._captures())

    def _captures(self) -> bool:
        """Whether the outputs lead to a leaf that is not ours."""
        own = {id(leaf) for leaf in self.leaves}
        waiting = [leaf for leaf in tree_flatten(self.output)[0] if isinstance(leaf, Tensor)]
        if any(t._node is None and t.requires_grad and id(t) not in own and _asks(t) for t in waiting):
            return True
        nodes = [t._node for t in waiting if t._node is not None]
        seen = set(map(id, nodes))
        while nodes:
            for edge in nodes.pop().edges:
                if edge is None or id(edge[0]) in own:
                    continue
                if edge[1] < 0:
                    if _asks(edge[0]):
                        return True
                elif id(edge[0]) not in seen:
                    seen.add(id(edge[0]))
                    nodes.append(edge[0])
        return False

    def gradients(self, outputs: Iterable[Any], vectors: Iterable[Any], keep: bool = True) -> list[Any]:
        """``vectors`` times the derivative of ``outputs`` by each leaf, zeros where nothing flows."""
        pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
        if not pairs:
            return [zeros_like(leaf.detach()) for leaf in self.leaves]
        tensors, seeds = [o for o, _ in pairs], [v for _, v in pairs]
        with enable_grad(), pushing() if self.forward else nullcontext():
            found = differentiate(
                tensors, self.leaves, seeds, keep or self.watched, self.watched, allow_unused=True
            )
        return [zeros_like(x.detach()) if g is None else g for g, x in zip(found, self.leaves, strict=True)]

    def shown(self, values: Any) -> Any:
        """What the caller gets: without our graph, unless it is part of a larger one."""
        for leaf in self.leaves:
            if _OWN in leaf.__dict__:
                leaf.__dict__[_OWN] = _DONE
        if self.onward is not None and not self.watched:
            self.onward.restore()
        return values if self.watched else tree_map(_detached, values)

    def as_given(self, values: list[Any], argnums: Argnums) -> Any:
        """One value a leaf, as nested as the inputs."""
        made = tree_unflatten(values, self.spec)
        return tuple(made) if isinstance(argnums, tuple) else made[0]


def _detached(value: Tensor | None) -> Tensor | None:
    return value.detach() if isinstance(value, Tensor) else value


def _split(output: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return output, None
    if not isinstance(output, tuple) or len(output) != 2:
        raise GradError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True, got"
            f" {type(output).__name__}"
        )
    return output


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns ``(gradient, value)`` of ``func``, which returns a scalar.

    ``argnums`` says by which arguments: any nests of tensors. With ``has_aux`` ``func`` returns
    ``(scalar, aux)``, and the new function ``(gradient, (value, aux))``.
    """

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        run = _Run(func, args, _positions(argnums, len(args)), kwargs)
        value, aux = _split(run.output, has_aux, "grad_and_value(f)(*args)")
        if not isinstance(value, Tensor):
            raise GradError(
                f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(value)}"
            )
        if value.ndim:
            raise GradError(
                "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with"
                f" {value.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
            )
        found = run.as_given(run.gradients((value,), (None,), keep=False), argnums)
        value = run.shown(value)
        return found, ((value, run.shown(aux)) if has_aux else value)

    return both


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of ``func``, which returns a scalar; ``(gradient, aux)`` with
    ``has_aux``.

    >>> import tenon
    >>> from tenon.func import grad
    >>> grad(grad(lambda x: x**3))(tenon.tensor(2.0))
    tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def _tensors(tree: Any, name: str) -> tuple[list[Any], TreeSpec]:
    leaves, spec = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise GradError(f"{name}: expected the function to return tensors only, got {type(leaf)}")
    return leaves, spec


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """``(func(*primals), pull)``; ``pull(cotangents)`` returns ``cotangents`` times the Jacobian, one value a
    primal. With ``has_aux`` also what ``func`` returned besides."""
    run = _Run(func, primals, list(range(len(primals))))
    output, aux = _split(run.output, has_aux, "vjp(f, *primals)")
    outputs, spec = _tensors(output, "vjp(f, *primals)")

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, own = tree_flatten(cotangents)
        if own != spec:
            raise GradError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the"
                f" function. cotangents: {own}, primal output: {spec}"
            )
        watched = run.watched
        run.watched = watched or bool(create_graph) or any(v.requires_grad for v in given)
        try:
            found = run.gradients(outputs, given, keep=retain_graph)
        finally:
            run.watched = watched
        return run.as_given(found, tuple(range(len(primals))))

    shown = run.shown(output)
    return (shown, pull, run.shown(aux)) if has_aux else (shown, pull)


def jvp(
    func: Callable[..., Any],
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """``(func(*primals), Jacobian times tangents)``, by differentiating a backward pass by its own seed."""
    if not isinstance(primals, tuple):
        raise GradError(
            "jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call"
            " f(*primals)."
        )
    directions, own = tree_flatten(tangents)
    points, spec = tree_flatten(primals)
    if spec != own:
        raise GradError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure, got"
            f" {spec} and {own}"
        )
    for point, direction in zip(points, directions, strict=True):
        if tuple(point.shape) != tuple(direction.shape):
            raise GradError(
                "Trying to set a forward gradient that has a different size than that of the original"
                f" Tensor, this is not supported. Tensor is of size {list(point.shape)} while the given"
                f" forward gradient is of size {list(direction.shape)}."
            )
    run = _Run(func, primals, list(range(len(primals))), forward=True)
    output, aux = _split(run.output, has_aux, "jvp(f, primals, tangents)")
    outputs, made = _tensors(output, "jvp(f, primals, tangents)")
    run.watched = run.watched or (run.taped and any(d.requires_grad for d in directions))
    pushed = tree_unflatten(_pushed(run, outputs, directions, strict), made)
    return (run.shown(output), pushed, run.shown(aux)) if has_aux else (run.shown(output), pushed)


def _pushed(run: _Run, outputs: list[Any], directions: list[Any], strict: bool) -> list[Any]:
    """The Jacobian times ``directions``: a backward pass is linear in its seeds, and this is its slope."""
    reached = [o for o in outputs if o.requires_grad]
    if strict and len(reached) < len(outputs):
        raise GradError("jvp: an output is independent of the inputs. This is not allowed in strict mode.")
    with enable_grad(), pushing():
        seeds = [_own(ones_like(o.detach())) for o in reached]  # rules may be linear by logarithms
        pulled = (
            differentiate(reached, run.leaves, seeds, create_graph=True, allow_unused=True) if seeds else ()
        )
        pairs = [
            (p, d) for p, d in zip(pulled, directions, strict=False) if p is not None and p.requires_grad
        ]
        slopes: tuple[Any, ...] = (None,) * len(seeds)
        if pairs:
            slopes = differentiate(
                [p for p, _ in pairs],
                seeds,
                [d for _, d in pairs],
                create_graph=run.watched,
                allow_unused=True,
            )
    for seed in seeds:
        seed.__dict__[_OWN] = _DONE
    found = iter(slopes)
    made = [next(found) if o.requires_grad else None for o in outputs]
    return [zeros_like(o.detach()) if m is None else m for m, o in zip(made, outputs, strict=True)]


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """``(func(*primals), push)``; ``push(*tangents)`` returns the Jacobian times ``tangents``."""

    def push(*tangents: Any) -> Any:
        return jvp(func, primals, tangents)[1]

    return func(*primals), push


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function that returns the Jacobian of ``func``: for a tensor by a tensor ``output shape + input
    shape``, else nests of them, outputs outside.

    One backward pass a number of the output, so that ``chunk_size`` changes nothing.
    """
    return _jacobian(func, argnums, has_aux, False)


def _jacobian(func: Callable[..., Any], argnums: Argnums, has_aux: bool, forward: bool) -> Callable[..., Any]:
    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        run = _Run(func, args, _positions(argnums, len(args)), kwargs, forward)
        output, aux = _split(run.output, has_aux, "jacrev(f)(*args)")
        outputs, spec = _tensors(output, "jacrev(f)(*args)")
        made = tree_unflatten([run.as_given(_rows(run, each), argnums) for each in outputs], spec)
        aux = run.shown(aux)
        return (made, aux) if has_aux else made

    return jacobian


def _rows(run: _Run, output: Tensor) -> list[Any]:
    """The Jacobian of one output by every leaf."""
    with enable_grad():
        flat = output.reshape(-1)
    rows = [run.gradients((flat[i],), (None,)) for i in range(flat.shape[0])]
    shapes = [(*output.shape, *leaf.shape) for leaf in run.leaves]
    if not rows:
        return [leaf.new_zeros(shape) for leaf, shape in zip(run.leaves, shapes, strict=True)]
    return [
        table.stack(*column, axis=0).reshape(shape)
        for column, shape in zip(zip(*rows, strict=True), shapes, strict=True)
    ]


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """``jacrev`` under the name of torch's forward mode, whose numbers it gives: as there, ``no_grad`` in
    ``func`` is no hindrance."""
    return _jacobian(func, argnums, has_aux, True)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of ``func``: the Jacobian of its Jacobian."""
    return jacfwd(jacrev(func, argnums), argnums)
