"""The interceptor that casts arguments: of an op by ``policy_of``, of a function by its own policies.

Casts are ops: they are taped, so that gradients have the dtype of the tensor before its cast, and recorded by
a ``Recorder`` below. A parameter's cast is cached until the outermost region ends, and discarded earlier if
the parameter is written or gets other memory, so that no stale weight is ever used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tenon.amp.policy import policy_of
from tenon.dtypes import bfloat16, float16
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, table
from tenon.engine.types import Nested
from tenon.engine.value import Value

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.engine.types import Array, Attrs

_FLOAT = np.dtype(np.float32)
_FLOATS = (_FLOAT, float16.numpy, bfloat16.numpy)


class Casting:
    """Autocast of one thread, for tensors of one or several types of devices."""

    only_casts = True

    def __init__(self) -> None:
        #: NumPy's dtype for matrix products, by name of the backend where autocast is on.
        self.targets: dict[str, np.dtype[np.generic]] = {}
        #: Whether casts of parameters are cached.
        self.caches = True
        #: Whether this interceptor is in the slot.
        self.placed = False
        #: Tensor, array, version and cast, by id of the tensor, dtype, and whether gradients are recorded.
        self.cache: dict[tuple[int, np.dtype[np.generic], bool], tuple[Value, Array, int, Value]] = {}

    def run(self, op: Op, args: tuple[object, ...], attrs: Attrs) -> Nested:
        """Call ``op`` with arguments cast by its policy."""
        below = SLOT.below(self)
        if MODE.casts is not None:
            device = self.device(args)
            policy = "" if device is None else policy_of(op, device, args)
            if policy:
                return below(op, self.arguments(policy, args, device), attrs)
        if isinstance(op, Composite) and not op.differentiable and MODE.enabled and _tracked(args):
            return SLOT.parts(op, args, attrs)
        return below(op, args, attrs)

    def device(self, args: Iterable[object]) -> str | None:
        """Return the backend of the first tensor in ``args`` for which autocast is on; None if there is
        none."""
        for tensor in _tensors(args):
            if tensor._backend.name in self.targets:
                return str(tensor._backend.name)
        return None

    def call(
        self,
        policies: dict[str, str],
        function: Callable[..., Nested],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> Nested:
        """Call ``function`` with cast arguments; the ops inside cast nothing."""
        device = self.device((*args, *kwargs.values()))
        policy = "given" if device is None else policies[device]
        if policy == "usual":
            return function(*args, **kwargs)
        args = self.arguments(policy, args, device)
        kwargs = dict(zip(kwargs, self.arguments(policy, tuple(kwargs.values()), device), strict=True))
        before, MODE.casts = MODE.casts, None
        try:
            return function(*args, **kwargs)
        finally:
            MODE.casts = before

    def arguments(self, policy: str, args: tuple[object, ...], device: str | None) -> tuple[object, ...]:
        """Return ``args`` with their tensors on ``device``, also those in lists, cast by ``policy``."""
        if policy == "given" or device is None:
            return args
        if policy == "lower":
            target = self.targets[device]
            return _map_tensors(lambda t: self.cached_cast(t, target) if _castable(t, device) else t, args)
        if policy == "float32":
            return _map_tensors(lambda t: _to_float32(t) if _castable(t, device) else t, args)
        dtypes = {t.raw.dtype for t in _tensors(args) if _castable(t, device)}
        if len(dtypes) < 2:
            return args
        return _map_tensors(lambda t: _to_float32(t) if _castable(t, device) else t, args)

    def cached_cast(self, tensor: Value, target: np.dtype[np.generic]) -> Value:
        """Return ``tensor`` cast to ``target``; the cast of a float32 leaf that requires grad is cached."""
        raw = tensor.raw
        if raw.dtype == target:
            return tensor
        if not (
            self.caches
            and tensor._track
            and tensor._node is None
            and tensor._view is None
            and raw.dtype == _FLOAT
        ):
            return table.cast(tensor, dtype=target)
        key = (id(tensor), target, MODE.enabled)
        version = tensor._counter()[0]
        entry = self.cache.get(key)
        if entry is not None and entry[0] is tensor and entry[1] is raw and entry[2] == version:
            return entry[3]
        result = table.cast(tensor, dtype=target)
        self.cache[key] = (tensor, raw, version, result)
        return result


def _to_float32(tensor: Value) -> Value:
    return tensor if tensor.raw.dtype == _FLOAT else table.cast(tensor, dtype=_FLOAT)


def _castable(tensor: Value, device: str) -> bool:
    """Return whether ``tensor`` is on ``device`` and floating point of at most 32 bits."""
    return tensor.raw.dtype in _FLOATS and tensor._backend.name == device


def _map_tensors(convert: Callable[[Value], Value], args: tuple[object, ...]) -> tuple[object, ...]:
    """Return ``args`` with ``convert`` applied to tensors, also to those in lists and tuples."""
    return tuple([convert(a) if isinstance(a, Value) else _map_list(convert, a) for a in args])


def _tensors(args: Iterable[object]) -> Iterator[Value]:
    """Yield the tensors in ``args``, also those in lists and tuples."""
    for a in args:
        if isinstance(a, Value):
            yield a
        elif type(a) is list or type(a) is tuple:
            yield from _tensors(a)


def _map_list(convert: Callable[[Value], Value], value: object) -> object:
    """Return ``value`` with ``convert`` applied to its tensors if it is a list or tuple, else ``value``."""
    if (type(value) is list or type(value) is tuple) and any(isinstance(v, Value) for v in value):
        return type(value)([convert(v) if isinstance(v, Value) else v for v in value])
    return value


def _tracked(args: tuple[object, ...]) -> bool:
    """Return whether an argument is part of a recorded graph."""
    return any(isinstance(a, Value) and (a._track or a._stale()) for a in args)
