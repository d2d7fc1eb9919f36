"""The interceptor that casts arguments: of each op as ``policy`` says, of functions as they say themselves.

Casts are ops: they are taped, so that gradients arrive in the dtype of what was cast, and recorded by a
``Recorder`` below. A parameter's cast is kept until the outermost region ends, and forgotten before if the
parameter is written or gets other memory, so that no stale weight is ever used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.amp.policy import policy_of
from tenon.dtypes import bfloat16, float16
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, table
from tenon.engine.precision import PRECISION
from tenon.engine.value import Value

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.nn.module import Module
    from tenon.tensors.tensor import Tensor

_FLOAT = np.dtype(np.float32)
_FLOATS = (_FLOAT, float16.numpy, bfloat16.numpy)


class Casting:
    """Autocast of one thread, for tensors of one or several types of devices."""

    only_casts = True

    def __init__(self) -> None:
        #: NumPy's dtype for products, by name of the backend where autocast is on.
        self.targets: dict[str, Any] = {}
        #: Whether casts of parameters are kept.
        self.keeps = True
        #: In the slot.
        self.placed = False
        #: Tensor, array, version and cast, by id of the tensor, dtype, and whether gradients are wanted.
        self.kept: dict[Any, tuple[Any, Any, int, Any]] = {}

    def run(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Cast as the policy of ``op`` says and hand on."""
        below = SLOT.below(self)
        if PRECISION.call is not None:
            device = self.device(args)
            chosen = "" if device is None else policy_of(op, device, args)
            if chosen:
                return below(op, self.arguments(chosen, args, device), attrs)
        if isinstance(op, Composite) and not op.differentiable and MODE.enabled and _tracked(args):
            return SLOT.parts(op, args, attrs)
        return below(op, args, attrs)

    def device(self, args: Iterable[Any]) -> str | None:
        """The backend, of those where autocast is on, of the first tensor that is on one."""
        for tensor in _tensors(args):
            if tensor._backend.name in self.targets:
                return str(tensor._backend.name)
        return None

    def call(
        self,
        policies: dict[str, str],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """``function`` on cast arguments, its own ops left alone."""
        device = self.device((*args, *kwargs.values()))
        chosen = "given" if device is None else policies[device]
        if chosen == "usual":
            return function(*args, **kwargs)
        args = self.arguments(chosen, args, device)
        kwargs = dict(zip(kwargs, self.arguments(chosen, tuple(kwargs.values()), device), strict=True))
        before, PRECISION.call = PRECISION.call, None
        try:
            return function(*args, **kwargs)
        finally:
            PRECISION.call = before

    def arguments(self, chosen: str, args: tuple[Any, ...], device: str | None) -> tuple[Any, ...]:
        """``args`` with their tensors on ``device`` (also in lists) in the dtype that ``chosen`` names."""
        if chosen == "given" or device is None:
            return args
        if chosen == "lower":
            target = self.targets[device]
            return _each(lambda t: self.lowered(t, target) if _castable(t, device) else t, args)
        if chosen == "float32":
            return _each(lambda t: _to_float32(t) if _castable(t, device) else t, args)
        found = {t.raw.dtype for t in _tensors(args) if _castable(t, device)}
        if len(found) < 2:
            return args
        return _each(lambda t: _to_float32(t) if _castable(t, device) else t, args)

    def lowered(self, tensor: Tensor, target: Any) -> Tensor:
        """``tensor`` in the dtype for products; of a float32 leaf that requires grad the cast is kept."""
        raw = tensor.raw
        if raw.dtype == target:
            return tensor
        if not (
            self.keeps
            and tensor._track
            and tensor._node is None
            and tensor._view is None
            and raw.dtype == _FLOAT
        ):
            return table.cast(tensor, dtype=target)
        key = (id(tensor), target, MODE.enabled)
        version = tensor._counter()[0]
        found = self.kept.get(key)
        if found is not None and found[0] is tensor and found[1] is raw and found[2] == version:
            return found[3]
        made = table.cast(tensor, dtype=target)
        self.kept[key] = (tensor, raw, version, made)
        return made


def _to_float32(tensor: Any) -> Any:
    return tensor if tensor.raw.dtype == _FLOAT else table.cast(tensor, dtype=_FLOAT)


def _castable(tensor: Tensor, device: str) -> bool:
    """Of at most 32 bits, and on the device."""
    return tensor.raw.dtype in _FLOATS and tensor._backend.name == device


def _each(convert: Callable[[Any], Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([convert(a) if isinstance(a, Value) else _inside(convert, a) for a in args])


def _tensors(args: Iterable[Any]) -> Iterator[Any]:
    """The tensors among ``args``, also in lists."""
    for a in args:
        if isinstance(a, Value):
            yield a
        elif a.__class__ in (list, tuple):
            yield from _tensors(a)


def _inside(convert: Callable[[Any], Any], value: Module | bool | Sequence[Tensor | int]) -> Any:
    """The tensors in a list or tuple converted."""
    if value.__class__ in (list, tuple) and any(isinstance(v, Value) for v in value):
        return value.__class__([convert(v) if isinstance(v, Value) else v for v in value])
    return value


def _tracked(args: tuple[Any, ...]) -> bool:
    return any(isinstance(a, Value) and (a._track or a._stale()) for a in args)
