"""Update many small parameters as one.

A call into the array library costs more than the arithmetic on a bias vector. The second time that the same
small parameters of a group have gradients, their states are concatenated into flat arrays, of which the
state tensors become views; from then on one call of the rule updates all of them. This requires an
elementwise rule; the results are those of updating one by one, bit for bit.

A plan is valid while parameters, arrays, state tensors and step counts are those it was built from. If one
was replaced in between (loaded, deleted, cast), the parameters are updated one by one again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.types import Array, Operand
from tenon.optim import update
from tenon.optim.types import Hyperparameters, ParamGroup, State
from tenon.optim.update import own_state, without_aliases
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer

#: Maximum number of elements of a parameter that is updated in a batch.
SMALL = 1 << 12
#: A parameter and its state.
Entry: TypeAlias = tuple[Tensor, State | None]
#: What the members of a batch have in common: names of the state, dtype, device, step count.
_Key: TypeAlias = tuple[tuple[str, ...], np.dtype, str, float | None]


class Member(NamedTuple):
    """One parameter of a plan, and the objects whose identity the plan depends on."""

    p: Tensor
    raw: Array
    #: Its state, with ``width`` entries; None if it has none yet.
    param_state: State | None
    width: int
    #: ``(name, tensor, the tensor's array)`` of each entry that is a tensor, other than the step count.
    slots: tuple[tuple[str, Tensor, Array], ...]
    #: The array of its step count; None if the rule does not count steps.
    step: Array


class Batch:
    """Members with equal dtype, backend, step count and state names, and their concatenated states."""

    __slots__ = ("arrays", "flats", "members", "params", "places", "stale", "steps")

    def __init__(self, entries: list[Entry], names: tuple[str, ...]) -> None:
        f = entries[0][0]._backend.raw
        self.stale = False
        self.arrays = {
            name: f.cat(
                *[param_state[name].raw.reshape(-1) for _, param_state in entries if param_state is not None],
                axis=0,
            )
            for name in names
        }
        self.members: list[Member] = []
        self.places: list[slice] = []
        begin = 0
        for p, param_state in entries:
            place = slice(begin, begin + p.raw.size)
            self.places.append(place)
            slots = []
            for name in names:
                assert param_state is not None
                view = self.arrays[name][place].reshape(p.raw.shape)
                param_state[name].raw = view
                slots.append((name, param_state[name], view))
            step = None if param_state is None or "step" not in param_state else param_state["step"].raw
            width = 0 if param_state is None else len(param_state)
            self.members.append(Member(p, p.raw, param_state, width, tuple(slots), step))
            begin = place.stop
        self.params = [m.p for m in self.members]
        self.flats = [m.raw.reshape(-1) for m in self.members]
        self.steps = [m.step for m in self.members]

    def update(self, optimizer: Optimizer, h: Hyperparameters, maximize: bool) -> None:
        """Update all members by one step."""
        f = self.params[0]._backend.raw
        flat = f.cat(*self.flats, axis=0)
        grad = f.cat(*[p._grad.raw.reshape(-1) for p in self.params], axis=0)
        if maximize:
            grad = f.neg(grad)
        counts = optimizer.counts_steps
        steps = h.step = int(self.steps[0].item()) + 1 if counts else None
        s = dict(self.arrays)
        result, new = without_aliases(f, s, *optimizer.update(f, flat, grad, s, h))
        for name, value in new.items():
            stored = self.arrays.get(name)
            if stored is None:
                self._add(name, value, optimizer)
            else:
                stored[...] = value
        for p, line, place in zip(self.params, self.flats, self.places, strict=True):
            line[...] = result[place]
            update.count_change(p)
        if counts:
            for step in self.steps:
                step[()] = steps

    def _add(self, name: str, value: Operand, optimizer: Optimizer) -> None:
        """Store state that the rule returned for the first time, per member, and invalidate the plan."""
        self.stale = True
        for p, place in zip(self.params, self.places, strict=True):
            stored = value
            if hasattr(value, "shape"):
                array = value[place].reshape(p.raw.shape) if value.ndim else p._backend.as_array(value)
                stored = Tensor.make(p._backend.raw.clone(array), p._backend)
            optimizer.state[p][name] = stored


class Plan:
    """The partition of one group's parameters into batches and those updated one by one."""

    def __init__(self, optimizer: Optimizer, params: list[Tensor]) -> None:
        by_key: dict[_Key, list[Entry]] = {}
        self.without_grad = {id(p) for p in params if p._grad is None}
        unique = len(set(map(id, params))) == len(params)
        for p in params if unique else ():
            param_state = optimizer.state.get(p)
            key = _key(optimizer, p, param_state)
            if key is not None:
                by_key.setdefault(key, []).append((p, param_state))
        self.batches = []
        for key, entries in by_key.items():
            for part in _parts(entries):
                if len(part) > 1:
                    self.batches.append(Batch(part, key[0]))
        batched = {id(m.p): m for batch in self.batches for m in batch.members}
        self.params = [(p, batched.get(id(p))) for p in params]

    def remaining(self, optimizer: Optimizer, params: list[Tensor]) -> list[Tensor] | None:
        """Return the parameters to update one by one, or None if the plan is no longer valid."""
        if len(params) != len(self.params):
            return None
        state, alone = optimizer.state, []
        for p, (known, m) in zip(params, self.params, strict=True):
            if p is not known:
                return None
            if m is None:
                if p._grad is not None:
                    if id(p) in self.without_grad:
                        return None
                    alone.append(p)
                continue
            param_state = m.param_state
            if p._grad is None or p.raw is not m.raw or state.get(p) is not param_state:
                return None
            if param_state is not None:
                if len(param_state) != m.width or (
                    m.step is not None and param_state["step"].raw is not m.step
                ):
                    return None
                for name, tensor, view in m.slots:
                    if param_state.get(name) is not tensor or tensor.raw is not view:
                        return None
        for batch in self.batches:
            if batch.stale or (optimizer.counts_steps and len({step.item() for step in batch.steps}) > 1):
                return None
        return alone


def run(
    optimizer: Optimizer, group: ParamGroup, h: Hyperparameters, maximize: bool
) -> tuple[list[Tensor], bool]:
    """Update the batches of the group's plan; return the others, and False if it has no plan yet."""
    params: list[Tensor] = group["params"]
    plan = optimizer._plans.get(id(group))
    if plan is None:
        return params, False
    remaining = plan.remaining(optimizer, params)
    if remaining is None:
        del optimizer._plans[id(group)]  # rebuilt after the next step: gradients may differ in every step
        return params, True
    for batch in plan.batches:
        batch.update(optimizer, h, maximize)
    return remaining, True


def _key(optimizer: Optimizer, p: Tensor, param_state: State | None) -> _Key | None:
    """Return the key that parameters of one batch share; None if ``p`` cannot be batched."""
    raw = p.raw
    if p._grad is None or isinstance(raw, Aval) or raw.size > SMALL or not raw.flags.c_contiguous:
        return None
    if p._backend.own is not p._backend:
        return None
    if raw.dtype.kind != "f" or raw.dtype.itemsize < 4 or p._grad.raw.dtype != raw.dtype:
        return None
    if param_state is None:
        return None if optimizer.counts_steps else ((), raw.dtype, str(p.device), None)
    own = own_state(optimizer, param_state)
    step = param_state.get("step") if optimizer.counts_steps else None
    if optimizer.counts_steps and step.__class__ is not Tensor:
        return None
    for value in own.values():
        if value.__class__ is not Tensor or value._backend is not p._backend:
            return None
        if value.raw.shape != raw.shape or value.raw.dtype != raw.dtype:
            return None
    return tuple(own), raw.dtype, str(p.device), None if step is None else step.item()


def _parts(entries: list[Entry]) -> list[list[Entry]]:
    """Split ``entries``, in order, so that no batch exceeds one block (``update.PIECE``)."""
    parts: list[list[Entry]] = [[]]
    size = 0
    for p, param_state in entries:
        if size + p.raw.size > update.PIECE and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append((p, param_state))
        size += p.raw.size
    return parts
