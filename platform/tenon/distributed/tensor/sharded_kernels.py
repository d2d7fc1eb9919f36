"""Kernels on sharded arrays: each calls that of the device on the parts that this rank has.

``Sharded`` chooses placements by the op's sharding rule (``propagation.py``) and brings the inputs there
(``redistribution.py``); choices are cached by shapes, placements and attrs. An op without a rule gathers its
inputs, computes on whole arrays, and says so once. ``Created`` and ``Drawn`` are ops that read no values.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tenon.distributed.tensor.chunks import local_part
from tenon.distributed.tensor.placement_types import Partial, Replicate
from tenon.distributed.tensor.propagation import Choice, Spec, choose
from tenon.distributed.tensor.sharded_array import Placements, ShardedArray, of_gradient, sharded_axes
from tenon.engine.aval import Aval, aval_of
from tenon.engine.op import Composite, Kind, Op
from tenon.engine.sharding_rule import Factors, ShardingRule
from tenon.engine.types import Arguments, Array, Attrs, Operand
from tenon.errors import TenonWarning
from tenon.kernels.backend import Kernel

if TYPE_CHECKING:
    from tenon.distributed.tensor.mesh_backend import MeshBackend

#: The number of choices that are kept of an op: more have sizes that differ in every step.
MOST_CHOICES = 4096
#: The ops that have warned that they gather their inputs.
WARNED: set[str] = set()


class Sharded:
    """The kernel of one op on sharded arrays."""

    def __init__(self, op: Op, backend: MeshBackend, parts: Kernel | None) -> None:
        self.op, self.backend = op, backend
        #: Computes the op by others: a composite, or one that has no rule for some calls.
        self.parts = parts
        self.choices: dict[object, tuple[ShardingRule | None, Choice | None]] = {}

    def __call__(self, *args: Operand, out: ShardedArray | None = None, **attrs: object) -> Operand:
        """Compute the op, into ``out`` if it is given."""
        backend = self.backend
        args = tuple(backend.replicate(a) if self._is_array(a) else a for a in args)
        if not any(isinstance(a, ShardedArray) for a in args):
            return getattr(backend.device.raw, self.op.name)(*args, **attrs)  # of numbers alone
        rule, choice = self._choice(args, attrs)
        if rule is None or choice is None:
            assert self.parts is not None
            result = self.parts(*map(self._whole_part, args), **attrs)
        else:
            result = self._run(rule, choice, args, attrs)
        if out is not None:
            out[...] = result
            return out
        return result

    def _is_array(self, value: Operand) -> bool:
        """Whether ``value`` is an array of the device that all ranks have, not a number."""
        return isinstance(value, self.backend.device.array_type) and bool(value.ndim)  # type: ignore[attr-defined]

    def _whole_part(self, a: Operand) -> Operand:
        """``a`` for the parts of an elementwise op that is not linear: each part would reduce partial results
        by itself."""
        op = self.op
        if op.kind is Kind.ELEMENTWISE and not op.linear and isinstance(a, ShardedArray):
            return a.redistributed(of_gradient(a.placements), op.name)
        return a

    def _choice(self, args: Arguments, attrs: Attrs) -> tuple[ShardingRule | None, Choice | None]:
        key = (
            tuple((a.shape, a.dtype, a.placements) if isinstance(a, ShardedArray) else type(a) for a in args),
            tuple(attrs.items()),
        )
        try:
            found = self.choices.get(key)
        except TypeError:  # an attr that cannot be hashed
            return self._choose(args, attrs)
        if found is None:
            if len(self.choices) >= MOST_CHOICES:
                self.choices.clear()
            found = self.choices[key] = self._choose(args, attrs)
        return found

    def _choose(self, args: Arguments, attrs: Attrs) -> tuple[ShardingRule | None, Choice | None]:
        op = self.op
        rule = op.sharding_rule(*map(aval_of, args), **attrs)
        if rule is None:
            if self.parts is not None:
                return None, None
            rule = self._whole(args)
        specs = [Spec(a.shape, a.nbytes, a.placements) if isinstance(a, ShardedArray) else None for a in args]
        choice = choose(rule, specs, self.backend.mesh.shape)
        divisible = (isinstance(op, Composite) and op.in_parts is None) or bool(rule.even)
        if divisible and self.parts is not None and choice.sends:  # fewer of its parts may need whole inputs
            return None, None
        return rule, choice

    def _whole(self, args: Arguments) -> ShardingRule:
        """The rule of an op that has none: all inputs are whole."""
        sharded = any(a.placements != a.replicated for a in args if isinstance(a, ShardedArray))
        if sharded and self.op.name not in WARNED:
            WARNED.add(self.op.name)
            warnings.warn(
                f"{self.op.name} has no sharding rule: its sharded inputs are gathered on every rank each"
                " time. Define Op.sharding_rule, or redistribute the inputs yourself. (Said once an op.)",
                TenonWarning,
                stacklevel=2,
            )
        return _all_whole(args)

    def _run(self, rule: ShardingRule, choice: Choice, args: Arguments, attrs: Attrs) -> Operand:
        op, backend = self.op, self.backend
        moved = False
        parts = []
        for a, placements in zip(args, choice.inputs, strict=True):
            if placements is not None and a.placements != placements:
                moved = True
                a = a.redistributed(placements, op.name)
            parts.append(a.local if placements is not None else a)
        whole = None
        if rule.shape_attr:
            whole = tuple(op.infer(*map(aval_of, args), **attrs).shape)
            attrs = {**attrs, rule.shape_attr: backend.part_of(whole, choice.outputs[0])}
        if not backend.member:
            return self._absent(args, attrs, choice)
        result = self._looked_up(rule, choice, args, parts, attrs)
        if result is None:
            result = self._local(parts, attrs)
        sizes = _factor_sizes(rule, args)
        several = isinstance(result, tuple)
        wrapped = []
        for i, local in enumerate(result if several else (result,)):
            local = local if hasattr(local, "shape") else backend.device.as_array(local)
            if not isinstance(local, (backend.device.array_type, Aval)):
                local = backend.device.as_array(local)
            placed, factors = self._placed(rule, choice, i, local)
            shape = (
                whole
                if whole is not None
                else tuple(
                    size if f is None else sizes[f] for f, size in zip(factors, local.shape, strict=True)
                )
            )
            array = ShardedArray(local, shape, placed, backend)
            if op.view:
                array.base = args[0]
                array.copy_of_axis = op.name if moved else args[0].copy_of_axis
            if op.is_class_loss and rule.looked_up is not None:
                array = array.redistributed(_without_looked_up(rule, choice, placed), op.name)
            wrapped.append(array)
        return tuple(wrapped) if several else wrapped[0]

    def _looked_up(
        self, rule: ShardingRule, choice: Choice, args: Arguments, parts: list[Operand], attrs: Attrs
    ) -> Operand | None:
        """The result of a look-up in a part of an input; None if no looked-up axis is split."""
        if rule.looked_up is None:
            return None
        mesh, device = self.backend.mesh, self.backend.device
        for a, factors, placements in zip(args, rule.inputs, choice.inputs, strict=True):
            if placements is None or rule.looked_up not in factors:
                continue
            axis = factors.index(rule.looked_up)
            if axis not in sharded_axes(placements):
                return None
            _, offset = local_part(a.shape, placements, mesh.shape, mesh.get_coordinate() or ())
            assert self.op.masked is not None
            return self.op.masked(device.raw, *parts, start=offset[axis], size=a.shape[axis], **attrs)
        return None

    def _placed(
        self, rule: ShardingRule, choice: Choice, index: int, local: Array
    ) -> tuple[Placements, Factors]:
        """The placements and the factors of output ``index``; whole if the op has no rule."""
        if index < len(rule.outputs):
            return choice.outputs[index], rule.outputs[index]
        if rule.outputs:
            raise AssertionError(
                f"the sharding rule of {self.op.name} states {len(rule.outputs)} outputs, but its kernel"
                " returned more. State all, the hidden ones included."
            )
        return (Replicate(),) * self.backend.mesh.ndim, (None,) * local.ndim

    def _local(self, parts: list[Operand], attrs: Attrs) -> Operand:
        """Run the device's kernel as dispatch does."""
        plan = self.backend.device.plans[self.op]
        first = next((p for p in parts if hasattr(p, "dtype")), None)
        short = first is not None and first.dtype.itemsize == 2 and first.dtype.kind in "fV"
        kernel = plan.short_kernel if short else plan.kernel
        return plan.layout(kernel, parts, attrs) if plan.layout else kernel(*parts, **attrs)

    def _absent(self, args: Arguments, attrs: Attrs, choice: Choice) -> Operand:
        """The result on a rank outside of the mesh: the right shape, and no elements."""
        backend, op = self.backend, self.op
        avals = op.infer(*map(aval_of, args), **attrs)
        several = isinstance(avals, tuple)
        results = []
        for i, aval in enumerate(avals if several else (avals,)):
            local = backend.device.xp.zeros((0,) * aval.ndim, aval.dtype)
            placed = choice.outputs[i] if i < len(choice.outputs) else (Replicate(),) * backend.mesh.ndim
            results.append(ShardedArray(local, tuple(aval.shape), placed, backend))
        return tuple(results) if several else results[0]


class Exact(Sharded):
    """The kernel of an op that is not computed element by element: that of the device, on whole arrays, where
    the backend is ``exact``; elsewhere ``kernel``."""

    def __init__(self, op: Op, backend: MeshBackend, kernel: Kernel) -> None:
        super().__init__(op, backend, None)
        self.kernel = kernel

    def __call__(self, *args: Operand, out: ShardedArray | None = None, **attrs: object) -> Operand:
        """Compute the op, into ``out`` if it is given."""
        if self.backend.exact:
            return super().__call__(*args, out=out, **attrs)
        return self.kernel(*args, **attrs) if out is None else self.kernel(*args, out=out, **attrs)

    def _choose(self, args: Arguments, attrs: Attrs) -> tuple[ShardingRule | None, Choice | None]:
        specs = [Spec(a.shape, a.nbytes, a.placements) if isinstance(a, ShardedArray) else None for a in args]
        rule = _all_whole(args)
        return rule, choose(rule, specs, self.backend.mesh.shape)


class Created:
    """The kernel of an op that reads the shape of its input and not the value: nothing is communicated."""

    def __init__(self, op: Op, backend: MeshBackend) -> None:
        self.op, self.backend = op, backend

    def __call__(self, x: ShardedArray, **attrs: object) -> ShardedArray:
        """Create the part of this rank."""
        backend, device = self.backend, self.backend.device
        shape = tuple(self.op.infer(aval_of(x), **attrs).shape)
        placements = of_gradient(x.placements) if shape == x.shape else x.replicated
        part = backend.part_of(shape, placements)
        if "shape" in attrs:
            attrs = {**attrs, "shape": part}
        like = device.empty((0,), x.dtype, device.device_of(x.local)) if "shape" in attrs else None
        if like is None:  # of the shape of ``x``: its part, or one of that shape where ``x`` is partial
            like = (
                x.local
                if tuple(x.local.shape) == part
                else device.empty(part, x.dtype, device.device_of(x.local))
            )
        return ShardedArray(device.kernels[self.op](like, **attrs), shape, placements, backend)


class Drawn:
    """The kernel of a random op: every rank draws the numbers of the whole array and keeps its own part, so
    that the result depends on the seed only, not on the number of ranks. Values that the op reads are
    gathered."""

    def __init__(self, op: Op, backend: MeshBackend) -> None:
        self.op, self.backend = op, backend

    def __call__(self, x: ShardedArray, **attrs: object) -> ShardedArray:
        """Draw the whole, and return the part of this rank."""
        backend, device = self.backend, self.backend.device
        shape = attrs.get("shape")
        if self.op.draws_by_shape:
            whole = device.xp.broadcast_to(device.xp.zeros((), x.dtype), x.shape)
        else:
            whole = x.redistributed(x.replicated, self.op.name).local
        drawn = backend.replicate(device.kernels[self.op](whole, **attrs))
        if shape is None or tuple(shape) == x.shape:  # type: ignore[arg-type]  # a shape, as the op's rule says
            return drawn.redistributed(of_gradient(x.placements), self.op.name)
        return drawn


def _all_whole(args: Arguments) -> ShardingRule:
    """The rule by which all inputs are whole."""
    inputs = tuple((None,) * a.ndim if isinstance(a, ShardedArray) else () for a in args)
    return ShardingRule(inputs, ())


def _without_looked_up(rule: ShardingRule, choice: Choice, placed: Placements) -> Placements:
    """``placed``, and whole over the mesh dimensions that split the looked-up axis, of a loss over classes:
    each rank has the loss of its samples, not a part of it."""
    scores = next(
        (p, f.index(rule.looked_up))
        for p, f in zip(choice.inputs, rule.inputs, strict=True)
        if p is not None and rule.looked_up in f
    )
    return tuple(
        Replicate() if isinstance(then, Partial) and now.is_shard(scores[1]) else then
        for now, then in zip(scores[0], placed, strict=True)
    )


def _factor_sizes(rule: ShardingRule, args: Arguments) -> dict[object, int]:
    """The size of each factor in the whole inputs."""
    return {
        factor: size
        for own, a in zip(rule.inputs, args, strict=False)
        if isinstance(a, ShardedArray)
        for factor, size in zip(own, a.shape, strict=True)
        if factor is not None
    }
