"""Apply an optimizer's rule to one parameter: on raw arrays, in cache-sized blocks, or through ops.

On raw arrays, an elementwise rule receives everything flattened and real: a complex parameter as pairs of
real numbers, as in PyTorch. 16-bit floats are computed in float32 and rounded once, when they are stored.
State tensors are updated in place, so references to them stay valid, as in PyTorch.

Through ops (with ``differentiable=True``, an active recorder or profiler, or on the meta device), the same
rule runs on tensors. Next: ``batch.py`` updates many small parameters as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from tenon import ops
from tenon.dtypes import float32, float64, get_default_dtype
from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.types import Array, Operand, OpNamespace
from tenon.engine.watchers import WATCHERS
from tenon.kernels.rounding import is_short
from tenon.optim.types import Hyperparameters, ParamGroup, State, Update
from tenon.tensors.creation.create import full
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer

#: Block size in float32 elements. Temporaries of 64 kB stay in the cache, and malloc reuses their memory;
#: from 128 kB on it calls mmap each time, and four million elements took 31 ms instead of 12.6.
PIECE = 1 << 14
_FLOAT32 = np.dtype(np.float32)
_PLAIN = frozenset((bool, int, float, str, list, type(None)))
#: Complex dtype -> the real dtype in which an elementwise rule computes.
_REAL = {np.dtype(np.complex64): _FLOAT32, np.dtype(np.complex128): np.dtype(np.float64)}


def hyperparameters(group: ParamGroup, keep_tensors: bool = False) -> Hyperparameters:
    """Return the group's options as attributes; one-element tensors are converted to numbers."""
    h = SimpleNamespace(**group)
    if not keep_tensors and not _PLAIN.issuperset(map(type, group.values())):
        for name, value in group.items():
            if value.__class__ in _PLAIN:
                continue
            if isinstance(value, Tensor):
                setattr(h, name, value.item())
            elif value.__class__ is tuple and any(isinstance(v, Tensor) for v in value):
                setattr(h, name, tuple(v.item() if isinstance(v, Tensor) else v for v in value))
    return h


def entry_of(optimizer: Optimizer, p: Tensor, init: Callable[[], State]) -> State:
    """Return the state of ``p``, created by ``init()`` before its first update; empty state is not stored."""
    param_state = optimizer.state.get(p)
    if param_state and (not optimizer.counts_steps or "step" in param_state):
        return param_state
    new: State = {"step": step_tensor(0.0)} if optimizer.counts_steps else {}
    new.update(init())
    if not new:
        return {} if param_state is None else param_state
    entry = optimizer.state[p]
    for name, value in new.items():
        entry.setdefault(name, value)
    return entry


def step_tensor(count: float) -> Tensor:
    """Return a step count in PyTorch's form: 0-d on the CPU; float64 if that is the default dtype."""
    return full((), count, float64 if get_default_dtype() is float64 else float32, "cpu")


def start(optimizer: Optimizer, p: Tensor) -> None:
    """Initialise the state of ``p`` now instead of at its first update."""
    if isinstance(p.raw, Aval):
        entry_of(optimizer, p, lambda: optimizer.init(ops, p.detach()))
    else:
        entry_of(optimizer, p, lambda: initial(optimizer, p))


def initial(optimizer: Optimizer, p: Tensor) -> State:
    """Return the result of the rule's ``init`` with arrays as tensors on the parameter's backend."""
    raw, backend = p.raw, p._backend
    paired = optimizer.elementwise and raw.dtype.kind == "c"
    state = optimizer.init(backend.raw, _pairs(raw) if paired else raw)
    entry = {}
    for name, value in state.items():
        if not hasattr(value, "shape"):
            entry[name] = value
            continue
        array = backend.as_array(value)
        if paired and tuple(array.shape) == (*raw.shape, 2):
            array = array.view(raw.dtype).reshape(raw.shape)
        entry[name] = Tensor.make(array, backend)
    return entry


def count(optimizer: Optimizer, param_state: State) -> int | None:
    """Return the number of the current step, from 1; None if the rule does not count steps."""
    if not optimizer.counts_steps:
        return None
    step = param_state["step"]
    return int(step.raw.item() if step.__class__ is Tensor else step) + 1


def set_count(optimizer: Optimizer, param_state: State, steps: int | None) -> None:
    """Store ``steps`` as the parameter's step count, if the rule counts steps."""
    if optimizer.counts_steps:
        step = param_state["step"]
        if step.__class__ is Tensor:
            step.raw[()] = steps
        else:
            param_state["step"] = steps


def count_change(p: Tensor) -> None:
    """Increment the version counter of ``p``, by which autograd detects in-place changes."""
    counter = p._version_counter
    if counter is None:
        p._version_counter = [1]
    else:
        counter[0] += 1


def update_alone(optimizer: Optimizer, p: Tensor, h: Hyperparameters, maximize: bool) -> None:
    """Update ``p`` by one step on raw arrays."""
    param_state = entry_of(optimizer, p, lambda: initial(optimizer, p))
    h.step = steps = count(optimizer, param_state)
    g = p._grad.raw
    if maximize:
        g = p._backend.raw.neg(g)
    for name, value in param_state.items():
        if isinstance(value, Tensor) and value._backend is not p._backend and name != "step":
            if isinstance(value.raw, Aval):  # initialised while the parameter was on the meta device
                param_state.update(initial(optimizer, p))
                break
            value.data = value.detach().to(p.device)  # the parameter moved to another device
    if p._backend.own is not p._backend:
        _place_state(p, param_state)
    if optimizer.elementwise:
        _elementwise(optimizer, p, g, param_state, h)
    else:
        _with_shape(optimizer, p, g, param_state, h)
    if param_state and p not in optimizer.state:
        optimizer.state[p] = param_state
    set_count(optimizer, param_state, steps)
    count_change(p)


def _place_state(p: Tensor, param_state: State) -> None:
    """Shard state of the shape of ``p`` as ``p`` is now: it may have been redistributed since."""
    for value in param_state.values():
        if isinstance(value, Tensor) and value._backend is p._backend and value.shape == p.shape:
            value.raw = p._backend.placed_as(p.raw, value.raw)


def own_state(optimizer: Optimizer, param_state: State) -> State:
    """Return the rule's own entries of ``param_state``; old checkpoints store None for absent ones."""
    counts = optimizer.counts_steps
    return {n: v for n, v in param_state.items() if v is not None and not (counts and n == "step")}


def _with_shape(optimizer: Optimizer, p: Tensor, g: Array, param_state: State, h: Hyperparameters) -> None:
    """Apply a rule that needs the parameter with its shape, at once."""
    raw, backend = p.raw, p._backend
    f = backend.raw
    s = {
        n: _wide(f, v.raw) if isinstance(v, Tensor) else v
        for n, v in own_state(optimizer, param_state).items()
    }
    result, new = without_aliases(f, s, *optimizer.update(f, _wide(f, raw), _wide(f, g), s, h))
    for name, value in new.items():
        stored = param_state.get(name)
        if not hasattr(value, "shape"):
            param_state[name] = value
        elif isinstance(stored, Tensor) and stored.raw.shape == value.shape:
            stored.raw[...] = value
        else:
            array = f.clone(backend.as_array(value))
            narrow = is_short(raw.dtype) and array.dtype == _FLOAT32 and array.shape == raw.shape
            param_state[name] = Tensor.make(f.cast(array, dtype=raw.dtype) if narrow else array, backend)
    raw[...] = result


def without_aliases(f: OpNamespace, s: State, result: Operand, new: State) -> Update:
    """Return the rule's ``result`` and ``new`` state without aliases of the old state ``s``.

    An old state array that is returned as the parameter, or under another name, is copied: the original is
    about to be overwritten in place.
    """
    for old_name, old in s.items():
        if result is old:
            result = f.clone(result)
        for name, value in new.items():
            if value is old and name != old_name and hasattr(value, "shape"):
                new = new | {name: f.clone(value)}
    return result, new


def _elementwise(optimizer: Optimizer, p: Tensor, g: Array, param_state: State, h: Hyperparameters) -> None:
    """Apply an elementwise rule to flattened arrays, block by block."""
    backend = p._backend
    own, part = backend.own, partial(backend.own_part, p.raw)
    raw, f = part(p.raw), own.raw
    flat, grad = _flat(raw), _flat(part(g))
    arrays: dict[str, Array] = {}
    others: State = {}
    for name, value in own_state(optimizer, param_state).items():
        if isinstance(value, Tensor) and value.raw.shape == p.raw.shape:
            arrays[name] = _flat(part(value.raw))
        else:
            others[name] = part(value.raw) if isinstance(value, Tensor) else value
    later: State = {}
    length = max(PIECE * 4 // max(flat.dtype.itemsize, 4), 1)

    def update(first: int, last: int) -> None:
        for begin in range(first * length, min(last * length, flat.size) or 1, length):
            piece = slice(begin, begin + length)
            s = others | {n: _wide(f, a[piece]) for n, a in arrays.items()}
            values = flat[piece]
            result, new = without_aliases(
                f, s, *optimizer.update(f, _wide(f, values), _wide(f, grad[piece]), s, h)
            )
            for name, value in new.items():
                if (
                    name not in arrays
                    and getattr(value, "shape", None) == values.shape
                    and name not in others
                ):
                    param_state[name], arrays[name] = _new_entry(p, value)
                if name in arrays:
                    arrays[name][piece] = value
                else:
                    later[name] = value  # a number or 0-d array: every block reads the old value
            flat[piece] = result

    # The first block creates state that the rule returns for the first time; the others can run in parallel.
    update(0, 1)
    rest = -(-flat.size // length) - 1
    if rest > 0:
        own.split(lambda first, last: update(first + 1, last + 1), rest, least=2)
    for name, value in later.items():
        is_array = hasattr(value, "shape")
        param_state[name] = Tensor.make(f.clone(own.as_array(value)), backend) if is_array else value
    _write_back(raw, flat)
    for name, array in arrays.items():
        _write_back(part(param_state[name].raw), array)


def _new_entry(p: Tensor, value: Array) -> tuple[Tensor, Array]:
    """Create a state tensor that ``update`` returned for the first time; return it and its flat array."""
    raw, backend = p.raw, p._backend
    own = raw.dtype if is_short(raw.dtype) or raw.dtype.kind == "c" else value.dtype
    array = backend.raw.new_full(raw, shape=tuple(raw.shape), value=0, dtype=own)
    return Tensor.make(array, backend), _flat(backend.own_part(raw, array))


def _wide(f: OpNamespace, array: Array) -> Array:
    return f.cast(array, dtype=_FLOAT32) if is_short(array.dtype) else array


def _flat(array: Array) -> Array:
    """Flatten ``array``, complex elements as two reals: a view if it is C-contiguous, else a copy."""
    line = array.reshape(-1) if _is_contiguous(array) else array.copy(order="C").reshape(-1)
    real = _REAL.get(array.dtype)
    return line if real is None else line.view(real)


def _pairs(array: Array) -> Array:
    """View a complex array as real with a trailing axis of size two (``torch.view_as_real``)."""
    return _flat(array).reshape(*array.shape, 2)


def _write_back(array: Array, flat: Array) -> None:
    """Copy ``flat`` into ``array`` unless it is a view of it."""
    if not _is_contiguous(array):
        array[...] = (flat.view(array.dtype) if array.dtype in _REAL else flat).reshape(array.shape)


def _is_contiguous(array: Array) -> bool:
    flags = getattr(array, "flags", None)
    return flags is not None and bool(flags.c_contiguous)


def update_through_ops(optimizer: Optimizer, p: Tensor, group: ParamGroup) -> None:
    """Update ``p`` by one step as ops that recorders see; taped if ``group`` is differentiable."""
    differentiable = bool(group.get("differentiable"))
    capturable = bool(group.get("capturable"))
    previous = MODE.enabled
    recorder = WATCHERS.recorder
    try:
        MODE.enabled = differentiable
        if recorder is None:
            h = hyperparameters(group, keep_tensors=differentiable or capturable)
        else:
            h = recorder.hyperparameters(optimizer, group)
        known = recorder is None or p in optimizer.state
        param_state = entry_of(optimizer, p, lambda: _initial_tensors(optimizer, p))
        if param_state and not known:
            recorder.discard("the optimizer's state was made")
        steps = count(optimizer, param_state)
        if capturable and optimizer.counts_steps:
            param_state["step"].add_(1)
            h.step = param_state["step"]
        elif recorder is not None and steps is not None:
            h.step = recorder.step_count(optimizer, param_state, steps)
        else:
            h.step = steps
        grad = p._grad if differentiable else p._grad.detach()
        if group.get("maximize"):
            grad = ops.neg(grad)
        old = p.clone() if differentiable else p.detach()
        result, new = _rule_on_tensors(optimizer, old, grad, own_state(optimizer, param_state), h)
        p.copy_(result)
        for name, value in new.items():
            _keep_tensor(param_state, name, value, differentiable)
        if param_state and p not in optimizer.state:
            optimizer.state[p] = param_state
        if not (capturable and optimizer.counts_steps):
            set_count(optimizer, param_state, steps)
    finally:
        MODE.enabled = previous


def _initial_tensors(optimizer: Optimizer, p: Tensor) -> State:
    if isinstance(p.raw, Aval):
        return dict(optimizer.init(ops, p.detach()))
    return initial(optimizer, p)


def _keep_tensor(param_state: State, name: str, value: Tensor, differentiable: bool) -> None:
    stored = param_state.get(name)
    if not isinstance(value, Tensor) or differentiable:
        param_state[name] = value
    elif isinstance(stored, Tensor) and stored.raw.shape == value.raw.shape:
        stored.copy_(value)
    else:
        param_state[name] = value.clone()
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.discard(f"the optimizer's state {name!r} was made")


def _rule_on_tensors(optimizer: Optimizer, p: Tensor, g: Tensor, s: State, h: Hyperparameters) -> Update:
    """Run ``update`` on tensors, with complex and 16-bit values converted as for raw arrays."""
    kind = p.raw.dtype
    if optimizer.elementwise and kind.kind == "c":
        result, new = optimizer.update(ops, _split(p), _split(g), {n: _split(v) for n, v in s.items()}, h)
        return _join(result), {n: _join(v) for n, v in new.items()}
    if is_short(kind):
        wide = {n: _as_float32(v) for n, v in s.items()}
        result, new = optimizer.update(ops, _as_float32(p), _as_float32(g), wide, h)
        for name, value in new.items():
            if isinstance(value, Tensor) and value.raw.dtype == _FLOAT32:
                new = new | {name: value.to(p.dtype)}
        return result, new
    result, new = optimizer.update(ops, p, g, s, h)
    return result, dict(new)


def _as_float32(value: Tensor) -> Tensor:
    return value.float() if isinstance(value, Tensor) and is_short(value.raw.dtype) else value


def _split(value: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.raw.dtype.kind != "c":
        return value
    parts = (ops.real(value), ops.imag(value))
    return ops.cat(*(part.reshape(*value.shape, 1) for part in parts), axis=value.ndim)


def _join(value: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim == 0 or value.shape[-1] != 2:
        return value
    return value[..., 0] + value[..., 1] * 1j
