"""``func.grad``, ``vjp``, ``jvp``, ``jacrev``, ``jacfwd``, ``hessian``: derivatives of functions of nested
tensors.

All are computed by backward passes. A result keeps its autograd history if the inputs, or a tensor that the
function captured, require a gradient. So the transforms nest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import TypeAlias

from tenon.autograd.tangent_taping import computing_tangents, taping_tangents
from tenon.engine.op import table
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, GradError
from tenon.tensors.autograd.grad_mode import enable_grad, is_grad_enabled
from tenon.tensors.autograd.passes import grad as differentiate
from tenon.tensors.creation.factories import ones_like, zeros_like
from tenon.tensors.pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from tenon.tensors.tensor import Tensor

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]

#: Indices of the arguments to differentiate with respect to.
Argnums: TypeAlias = int | tuple[int, ...]


def _positions(argnums: Argnums, count: int) -> list[int]:
    """Return ``argnums`` as indices from 0; ArgumentError unless they are unique and below ``count``."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    for position in numbers:
        if not -count <= position < count:
            raise ArgumentError(f"Got argnum={position}, but only {count} positional inputs")
    positions = [position % count for position in numbers]
    if not positions or len(set(positions)) < len(positions):
        raise ArgumentError(f"argnums elements must be unique, got {argnums}")
    return positions


#: Attribute of a leaf that a transform created, and its value once that transform has returned. Until then
#: transforms inside of it keep their history.
_OWN, _DONE = "_of_transform", "done"


def _own(value: Tensor) -> Tensor:
    """Return an alias of ``value`` as a leaf of a transform."""
    leaf = value.detach().requires_grad_()
    leaf.__dict__[_OWN] = "active"
    return leaf


def _needs_gradient(leaf: Tensor) -> bool:
    """Whether the gradient of ``leaf`` may still be needed: it belongs to no transform that has returned."""
    return bool(leaf.__dict__.get(_OWN) != _DONE)


class _Run:
    """One call of a function: its inputs as new leaves, or as aliases of tracked tensors, and its output."""

    def __init__(
        self,
        func: Callable[..., Nested],
        args: tuple[Nested, ...],
        chosen: list[int],
        kwargs: Mapping[str, Nested] = MappingProxyType({}),
        forward: bool = False,
    ) -> None:
        self.forward = forward
        self.taped = is_grad_enabled()
        leaves, self.spec = tree_flatten([args[i] for i in chosen])
        for leaf in leaves:
            if not isinstance(leaf, Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
                kind = leaf.dtype if isinstance(leaf, Tensor) else type(leaf)
                raise GradError(f"only Tensors of floating point dtype can require gradients, got {kind}")
        with enable_grad():
            self.leaves = [
                table.alias(leaf) if self.taped and leaf.requires_grad else _own(leaf) for leaf in leaves
            ]
            fresh = list(args)
            for i, value in zip(chosen, tree_unflatten(self.leaves, self.spec), strict=True):
                fresh[i] = value
            with taping_tangents(self.leaves) if forward else nullcontext() as self.taping:
                self.output: Nested = func(*fresh, **kwargs)
        outer = any(leaf.requires_grad for leaf in leaves)
        self.watched = self.taped and (outer or self._captures())

    def _captures(self) -> bool:
        """Whether the outputs depend on a leaf outside of this transform."""
        own = {id(leaf) for leaf in self.leaves}
        outputs = [leaf for leaf in tree_flatten(self.output)[0] if isinstance(leaf, Tensor)]
        if any(
            t._node is None and t.requires_grad and id(t) not in own and _needs_gradient(t) for t in outputs
        ):
            return True
        nodes = [t._node for t in outputs if t._node is not None]
        seen = set(map(id, nodes))
        while nodes:
            for edge in nodes.pop().edges:
                if edge is None or id(edge[0]) in own:
                    continue
                if edge[1] < 0:
                    if _needs_gradient(edge[0]):
                        return True
                elif id(edge[0]) not in seen:
                    seen.add(id(edge[0]))
                    nodes.append(edge[0])
        return False

    def gradients(
        self, outputs: Iterable[Tensor], vectors: Iterable[Tensor | None], keep: bool = True
    ) -> list[Tensor]:
        """Return ``vectors @ J`` for each leaf, zeros if it does not affect ``outputs``; ``keep`` the
        graph."""
        pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
        if not pairs:
            return [zeros_like(leaf.detach()) for leaf in self.leaves]
        tensors, seeds = [o for o, _ in pairs], [v for _, v in pairs]
        with enable_grad(), computing_tangents() if self.forward else nullcontext():
            grads = differentiate(
                tensors, self.leaves, seeds, keep or self.watched, self.watched, allow_unused=True
            )
        return [zeros_like(x.detach()) if g is None else g for g, x in zip(grads, self.leaves, strict=True)]

    def finished(self, values: Nested) -> Nested:
        """End the transform; return ``values``, detached unless their history is part of a larger graph."""
        for leaf in self.leaves:
            if _OWN in leaf.__dict__:
                leaf.__dict__[_OWN] = _DONE
        if self.taping is not None and not self.watched:
            self.taping.restore()
        return values if self.watched else tree_map(_detached, values)

    def nested(self, values: list[Tensor], argnums: Argnums) -> Nested:
        """Return one value per leaf, nested as the inputs are."""
        result = tree_unflatten(values, self.spec)
        return tuple(result) if isinstance(argnums, tuple) else result[0]


def _detached(value: Tensor | None) -> Tensor | None:
    return value.detach() if isinstance(value, Tensor) else value


def _split(output: Nested, has_aux: bool, name: str) -> tuple[Nested, Nested]:
    """Return the output to differentiate, and the auxiliary one or None."""
    if not has_aux:
        return output, None
    if not isinstance(output, tuple) or len(output) != 2:
        raise GradError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True, got"
            f" {type(output).__name__}"
        )
    return output


def grad_and_value(
    func: Callable[..., Nested], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Nested]:
    """Return a function that returns ``(gradient, value)`` of ``func``, which returns a scalar tensor.

    ``argnums`` selects the arguments, each a tensor or a nested structure of tensors. With ``has_aux``,
    ``func`` returns ``(scalar, aux)``, and the new function ``(gradient, (value, aux))``.
    """

    @functools.wraps(func)
    def both(*args: Nested, **kwargs: Nested) -> Nested:
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
        gradient = run.nested(run.gradients((value,), (None,), keep=False), argnums)
        value = run.finished(value)
        return gradient, ((value, run.finished(aux)) if has_aux else value)

    return both


def grad(func: Callable[..., Nested], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Nested]:
    """Return a function that returns the gradient of ``func``, which returns a scalar tensor.

    With ``has_aux``, ``func`` returns ``(scalar, aux)``, and the new function ``(gradient, aux)``.

    >>> import tenon
    >>> from tenon.func import grad
    >>> grad(grad(lambda x: x**3))(tenon.tensor(2.0))
    tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*args: Nested, **kwargs: Nested) -> Nested:
        result, value = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return gradient


def _tensors(tree: Nested, name: str) -> tuple[list[Tensor], TreeSpec]:
    """Return the leaves of an output and its structure; GradError unless all are tensors."""
    leaves, spec = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise GradError(f"{name}: expected the function to return tensors only, got {type(leaf)}")
    return leaves, spec


def vjp(func: Callable[..., Nested], *primals: Nested, has_aux: bool = False) -> tuple[Nested, ...]:
    """Return ``(func(*primals), vjp_fn)``, where ``vjp_fn(cotangents)`` returns ``cotangents @ J`` for each
    primal.

    With ``has_aux``, ``func`` returns ``(output, aux)``, and the result is ``(output, vjp_fn, aux)``.
    """
    run = _Run(func, primals, list(range(len(primals))))
    output, aux = _split(run.output, has_aux, "vjp(f, *primals)")
    outputs, spec = _tensors(output, "vjp(f, *primals)")

    def vjp_fn(cotangents: Nested, retain_graph: bool = True, create_graph: bool | None = None) -> Nested:
        vectors, own = tree_flatten(cotangents)
        if own != spec:
            raise GradError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the"
                f" function. cotangents: {own}, primal output: {spec}"
            )
        watched = run.watched
        run.watched = watched or bool(create_graph) or any(v.requires_grad for v in vectors)
        try:
            grads = run.gradients(outputs, vectors, keep=retain_graph)
        finally:
            run.watched = watched
        return run.nested(grads, tuple(range(len(primals))))

    result = run.finished(output)
    return (result, vjp_fn, run.finished(aux)) if has_aux else (result, vjp_fn)


def jvp(
    func: Callable[..., Nested],
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Nested, ...]:
    """Return ``(func(*primals), J @ tangents)``; with ``has_aux`` also the second output of ``func``.

    It is computed by differentiating a backward pass with respect to its output gradients.
    """
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
    outputs, structure = _tensors(output, "jvp(f, primals, tangents)")
    run.watched = run.watched or (run.taped and any(d.requires_grad for d in directions))
    pushed = tree_unflatten(_pushed(run, outputs, directions, strict), structure)
    return (run.finished(output), pushed, run.finished(aux)) if has_aux else (run.finished(output), pushed)


def _pushed(run: _Run, outputs: list[Tensor], directions: list[Tensor], strict: bool) -> list[Tensor]:
    """Return ``J @ directions``: the derivative of a backward pass, which is linear in its seeds."""
    reached = [o for o in outputs if o.requires_grad]
    if strict and len(reached) < len(outputs):
        raise GradError("jvp: an output is independent of the inputs. This is not allowed in strict mode.")
    with enable_grad(), computing_tangents():
        seeds = [_own(ones_like(o.detach())) for o in reached]  # 1, as rules may use logarithms
        pulled = (
            differentiate(reached, run.leaves, seeds, create_graph=True, allow_unused=True) if seeds else ()
        )
        pairs = [
            (p, d) for p, d in zip(pulled, directions, strict=False) if p is not None and p.requires_grad
        ]
        slopes: tuple[Tensor | None, ...] = (None,) * len(seeds)
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
    remaining = iter(slopes)
    pushed = [next(remaining) if o.requires_grad else None for o in outputs]
    return [zeros_like(o.detach()) if p is None else p for p, o in zip(pushed, outputs, strict=True)]


def linearize(func: Callable[..., Nested], *primals: Nested) -> tuple[Nested, Callable[..., Nested]]:
    """Return ``(func(*primals), jvp_fn)``, where ``jvp_fn(*tangents)`` returns ``J @ tangents``."""

    def jvp_fn(*tangents: Nested) -> Nested:
        return jvp(func, primals, tangents)[1]

    return func(*primals), jvp_fn


def jacrev(
    func: Callable[..., Nested], argnums: Argnums = 0, *, has_aux: bool = False,
    chunk_size: int | None = None, _preallocate_and_copy: bool = False,
) -> Callable[..., Nested]:  # fmt: skip
    """Return a function that returns the Jacobian of ``func``.

    For one output and one input it is a tensor of shape ``output.shape + input.shape``; else these are
    nested as the outputs, and inside of that as the inputs. ``chunk_size`` has no effect: there is one
    backward pass per output element.
    """
    return _jacobian(func, argnums, has_aux, False)


def _jacobian(
    func: Callable[..., Nested], argnums: Argnums, has_aux: bool, forward: bool
) -> Callable[..., Nested]:
    """Return the function of ``jacrev``; with ``forward``, that of ``jacfwd``."""

    @functools.wraps(func)
    def jacobian(*args: Nested, **kwargs: Nested) -> Nested:
        run = _Run(func, args, _positions(argnums, len(args)), kwargs, forward)
        output, aux = _split(run.output, has_aux, "jacrev(f)(*args)")
        outputs, spec = _tensors(output, "jacrev(f)(*args)")
        result = tree_unflatten([run.nested(_rows(run, each), argnums) for each in outputs], spec)
        aux = run.finished(aux)
        return (result, aux) if has_aux else result

    return jacobian


def _rows(run: _Run, output: Tensor) -> list[Tensor]:
    """Return the Jacobian of one output with respect to each leaf."""
    with enable_grad():
        flat = output.reshape(-1)
        elements = [flat[i] for i in range(flat.shape[0])]
    rows = [run.gradients((element,), (None,)) for element in elements]
    shapes = [(*output.shape, *leaf.shape) for leaf in run.leaves]
    if not rows:
        return [leaf.new_zeros(shape) for leaf, shape in zip(run.leaves, shapes, strict=True)]
    return [
        table.stack(*column, axis=0).reshape(shape)
        for column, shape in zip(zip(*rows, strict=True), shapes, strict=True)
    ]


def jacfwd(
    func: Callable[..., Nested], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Nested]:
    """Return a function that returns the Jacobian of ``func``, as ``jacrev`` does (torch.func.jacfwd).

    Unlike there, ``no_grad`` inside ``func`` does not stop derivatives.
    """
    return _jacobian(func, argnums, has_aux, True)


def hessian(func: Callable[..., Nested], argnums: Argnums = 0) -> Callable[..., Nested]:
    """Return a function that returns the Hessian of ``func``: the Jacobian of its Jacobian.

    Of a function with a scalar result it has the shape ``input.shape + input.shape``.
    """
    return jacfwd(jacrev(func, argnums), argnums)
