"""Update all parameters of a group in one call of one compiled kernel.

An elementwise rule is traced with symbolic arrays (``recording.py``), which takes a few microseconds and
yields its ops and the current scalars; the backend compiles the ops once (``Compiler.fuse_each``) and updates
all parameters, gradients and states in place. The results are those of running the rule on the arrays, bit
for bit where the rule adds, multiplies, divides, takes roots and compares.

A rule that refers to nothing but its arguments is traced again only when one of them changes.

All other cases fall back to ``batch.py`` and ``update.py``: complex and 16-bit parameters, non-contiguous
arrays, a first step that creates state, a rule that cannot be traced, a backend without such kernels, and
groups too small, or updated too rarely so far, for compilation to pay off.
"""

from __future__ import annotations

import dis
import functools
import inspect
import operator
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.types import Array
from tenon.errors import NotFusableError
from tenon.optim import recording
from tenon.optim.batch import Member
from tenon.optim.recording import OPS, Recording, SymbolicArray
from tenon.optim.types import Hyperparameters, ParamGroup, Update
from tenon.optim.update import own_state
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.kernels.backend import Backend
    from tenon.kernels.compiler import BoundMultiTensorKernel, MultiTensorKernel
    from tenon.optim.optimizer import Optimizer

#: Number of elements updated, over all steps, before a kernel is compiled.
COMPILE_AFTER = 1 << 17
#: Size of a group, in elements plus elements per parameter, below which tracing the rule at every step costs
#: more than ``batch.py`` does: only rules that need no new trace are fused there (SGD, 4 parameters of 19
#: elements in all: 13 us fused, 23 us fused and traced every time, 17 us in ``batch.py``).
SMALL, SMALL_EACH = 1 << 13, 1 << 8
#: ``(target, value)`` of each output: the index of the input that it overwrites, and of the traced value.
Pairs: TypeAlias = tuple[tuple[int, int], ...]
#: What the members of a set have in common: names of the state, dtype, backend, device, step count.
_Key: TypeAlias = tuple[tuple[str, ...], np.dtype, "Backend", str, float | None]
#: Raised while tracing a rule that does what symbolic arrays do not support, or reads missing state.
_NOT_RECORDED = (NotFusableError, TypeError, AttributeError, ValueError, LookupError)
_SETTLED = frozenset((bool, int, float, str))
#: (backend, dtype, ops, outputs, ...) -> kernel, or None where the backend has none.
_KERNELS: dict[tuple[Hashable, ...], MultiTensorKernel | None] = {}


class _Set:
    """Parameters with equal dtype, backend, state names and step count."""

    def __init__(self, members: list[Member], names: tuple[str, ...]) -> None:
        self.members = members
        self.names = names
        self.backend = members[0].p._backend
        self.dtype = members[0].raw.dtype
        self.sharded = self.backend.own is not self.backend
        self.tables: dict[tuple[Hashable, ...], BoundMultiTensorKernel | None] = {}
        #: Hyper-parameters, scalars and kernel table of the last step; cached if the rule reads nothing else.
        self.known: tuple[dict[str, object], list[float], BoundMultiTensorKernel | None] | None = None

    def step_count(self) -> int | None:
        """Return the common step count, -1 if counts differ, None if the rule does not count steps."""
        first = self.members[0].step
        if first is None:
            return None
        count = first.item()
        for m in self.members:
            if m.step.item() != count:
                return -1
        return int(count)

    def record(self, optimizer: Optimizer, h: Hyperparameters, maximize: bool) -> tuple[Recording, Pairs]:
        """Trace the rule; return its ops and the ``(target, value)`` pairs of its outputs."""
        trace = Recording(2 + len(self.names))
        p, g, *states = trace.arrays()
        if maximize:
            g = trace.record("neg", (g,))
        old = dict(zip(self.names, states, strict=True))
        result, new = optimizer.update(OPS, p, g, dict(old), h)
        pairs = [(0, result)]
        for name, value in new.items():
            if name not in old:
                raise _NewState
            pairs.append((2 + self.names.index(name), value))
        if not trace.exact or any(v.__class__ is not SymbolicArray for _, v in pairs):
            raise NotFusableError("a rule with functions that round in more than one way is not fused.")
        return trace, tuple((target, v.index) for target, v in pairs if v.index != target)

    def table(self, trace: Recording, pairs: Pairs) -> BoundMultiTensorKernel | None:
        """Return the compiled kernel bound to these arrays; None if the backend has none."""
        key = (self.backend, self.dtype, trace.inputs, tuple(trace.ops), len(trace.numbers), pairs)
        table = self.tables.get(key)
        if table is None:
            if key not in _KERNELS:
                _KERNELS[key] = _compiled(self.backend, trace, self.dtype, pairs)
            kernel = _KERNELS[key]
            if kernel is None:
                return None
            states = [[m.slots[i][2] for m in self.members] for i in range(len(self.names))]
            arrays = self._own_parts([m.raw for m in self.members])
            table = self.tables[key] = kernel.over([arrays, self.gradients(), *map(self._own_parts, states)])
        return table

    def gradients(self) -> list[Array]:
        """The gradients of the members; of sharded ones, the parts on this rank."""
        return self._own_parts([m.p._grad.raw for m in self.members])

    def _own_parts(self, arrays: list[Array]) -> list[Array]:
        if not self.sharded:
            return arrays
        part = self.backend.own_part
        return [part(m.raw, array) for m, array in zip(self.members, arrays, strict=True)]

    def prepared(
        self, optimizer: Optimizer, h: Hyperparameters, maximize: bool
    ) -> tuple[list[float], BoundMultiTensorKernel | None]:
        """Return the scalars of this step and the kernel table that takes them (None: no kernel)."""
        values, known = vars(h), self.known
        if known is not None and known[0] == values:
            return known[1], known[2]
        trace, pairs = self.record(optimizer, h, maximize)
        table = self.table(trace, pairs)
        if _refers_to_nothing(optimizer.update) and _are_immutable(values):
            self.known = dict(values), trace.numbers, table
        return trace.numbers, table


class _NewState(NotFusableError):
    """Raised if the rule returns state that the parameters do not have yet."""

    def __init__(self) -> None:
        super().__init__("the rule makes new state; the next step may be fused.")


def _refers_to_nothing(update: Callable[..., Update]) -> bool:
    """Whether a rule reads nothing but its arguments and their attributes: no globals, no optimizer."""
    return _is_closed(getattr(update, "__func__", None))


@functools.cache
def _is_closed(rule: object) -> bool:
    if not isinstance(rule, FunctionType):
        return False
    code = rule.__code__
    if code.co_freevars or code.co_cellvars:
        return False
    if any(inspect.iscode(c) for c in code.co_consts) or not rule.__globals__.keys().isdisjoint(
        code.co_names
    ):
        return False
    own = code.co_varnames[0]
    return not any(
        own in (i.argval if i.argval.__class__ is tuple else (i.argval,)) for i in dis.get_instructions(code)
    )


def _are_immutable(values: dict[str, object]) -> bool:
    """Whether all hyper-parameters are immutable, so that identity implies equality."""
    return all(v is None or v.__class__ in _SETTLED for name, v in values.items() if name != "params")


def _compiled(backend: Backend, trace: Recording, dtype: np.dtype, pairs: Pairs) -> MultiTensorKernel | None:
    if backend.own.compiler is None:
        return None
    try:
        cluster = recording.cluster_of(trace, dtype, tuple(value for _, value in pairs))
    except NotFusableError:
        return None
    return backend.own.compiler.fuse_each(cluster, tuple(target for target, _ in pairs))


class Plan:
    """The fusion plan of one parameter group: its sets, and how many elements were updated so far."""

    def __init__(self) -> None:
        self.done = self.failures = 0
        self.off = False
        self.sets: list[_Set] = []
        self.order: list[Tensor] = []

    def holds(self, optimizer: Optimizer, params: list[Tensor]) -> bool:
        """Whether every set still matches the parameters, their states and gradients."""
        if len(params) != len(self.order) or not all(map(operator.is_, params, self.order)):
            return False
        state = optimizer.state
        for each in self.sets:
            dtype = each.dtype
            for p, own, param_state, width, slots, step in each.members:
                grad = p._grad
                if grad is None or p.raw is not own or state.get(p) is not param_state:
                    return False
                raw = grad.raw
                if raw.dtype is not dtype or not raw.flags.c_contiguous or raw.shape != own.shape:
                    return False
                if each.sharded and not each.backend.is_placed_as(own, raw):
                    return False
                if param_state is not None:
                    if len(param_state) != width or (
                        step is not None and getattr(param_state.get("step"), "raw", None) is not step
                    ):
                        return False
                    for name, tensor, array in slots:
                        if param_state.get(name) is not tensor or tensor.raw is not array:
                            return False
        return True

    def make(self, optimizer: Optimizer, params: list[Tensor]) -> None:
        """Sort the parameters that can be fused into sets."""
        by_key: dict[_Key, list[Member]] = {}
        self.order = list(params)
        for p in params:
            keyed = _member(optimizer, p)
            if keyed is not None:
                by_key.setdefault(keyed[1], []).append(keyed[0])
        self.sets = [_Set(members, key[0]) for key, members in by_key.items() if _distinct(members)]


def _member(optimizer: Optimizer, p: Tensor) -> tuple[Member, _Key] | None:
    raw, grad = p.raw, p._grad
    if grad is None or isinstance(raw, Aval) or raw.dtype.kind != "f" or raw.dtype.itemsize < 4:
        return None
    arrays = [raw, grad.raw]
    param_state = optimizer.state.get(p)
    step = None
    if param_state is None:
        if optimizer.counts_steps:
            return None
        slots: tuple[tuple[str, Tensor, Array], ...] = ()
    else:
        if optimizer.counts_steps:
            if param_state.get("step").__class__ is not Tensor:
                return None
            step = param_state["step"].raw
        own = own_state(optimizer, param_state)
        if any(not isinstance(v, Tensor) or v._backend is not p._backend for v in own.values()):
            return None
        slots = tuple((name, v, v.raw) for name, v in own.items())
        arrays += [array for _, _, array in slots]
    for a in arrays:
        if a.dtype is not raw.dtype or a.shape != raw.shape or not a.flags.c_contiguous or not a.size:
            return None
        if not p._backend.is_placed_as(raw, a):
            return None
    names = tuple(name for name, _, _ in slots)
    count = None if step is None else step.item()
    width = 0 if param_state is None else len(param_state)
    return Member(p, raw, param_state, width, slots, step), (
        names,
        raw.dtype,
        p._backend,
        str(p.device),
        count,
    )


def _distinct(members: list[Member]) -> bool:
    """Whether no array or parameter occurs twice among the members (compared by identity)."""
    arrays = [m.raw for m in members] + [array for m in members for _, _, array in m.slots]
    return len({id(a) for a in arrays}) == len(arrays) and len({id(m.p) for m in members}) == len(members)


def run(optimizer: Optimizer, group: ParamGroup, h: Hyperparameters, maximize: bool) -> list[Tensor] | None:
    """Update what can be fused; return the remaining parameters, or None if nothing was updated."""
    params: list[Tensor] = group["params"]
    plan = optimizer._fused.get(id(group))
    if plan is None:
        plan = optimizer._fused[id(group)] = Plan()
    if plan.off:
        return None
    if plan.done < COMPILE_AFTER:
        size = sum(p.raw.size for p in params if p._grad is not None)
        plan.done += size
        if plan.done < COMPILE_AFTER:
            return None
        if size < SMALL + SMALL_EACH * len(params) and (
            optimizer.counts_steps or not _refers_to_nothing(optimizer.update)
        ):
            plan.done = 0  # check again later: more parameters may have gradients then
            return None
    if not plan.holds(optimizer, params) or not plan.sets:
        plan.make(optimizer, params)
        if not plan.sets:
            return None
    ready = []
    try:
        for each in plan.sets:
            count = each.step_count()
            if count == -1:
                plan.sets = []
                return None
            h.step = steps = None if count is None else count + 1
            ready.append((each, steps, *each.prepared(optimizer, h, maximize)))
    except _NewState:
        return None
    except _NOT_RECORDED:  # the fallback on real arrays works, or raises the error to the user
        plan.failures += 1
        plan.off = plan.failures > 1  # the first failure may be due to state that the first step creates
        return None
    done: list[Member] = []
    for each, steps, numbers, table in ready:
        if table is None:
            plan.off = True
            break
        table.set(1, each.gradients())
        table.run(numbers)
        _count_step(each, steps)
        done += each.members
    if len(done) < len(params):
        known = {id(m.p) for m in done}
        return [p for p in params if id(p) not in known] if done else None
    return []


def _count_step(each: _Set, steps: int | None) -> None:
    """Store the step count, and increment the version counters that autograd checks."""
    for m in each.members:
        counter = m.p._version_counter  # as count_change does, without a call per parameter
        if counter is None:
            m.p._version_counter = [1]
        else:
            counter[0] += 1
        if m.step is not None:
            m.step[()] = steps
