"""The interceptor that casts arguments: of each op as ``policy`` says, of functions as they say themselves.

Casts are ops: they are taped, so that gradients arrive in the dtype of what was cast, and recorded by a
``Recorder`` below. A parameter's cast is kept until the outermost region ends, and forgotten before if the
parameter is written or gets other memory, so that no stale weight is ever used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.amp import policy
from tenon.core.grad_mode import MODE
from tenon.core.interceptor import SLOT
from tenon.core.op import Composite, table
from tenon.core.precision import PRECISION
from tenon.core.value import Value
from tenon.dtypes import bfloat16, float16

_FLOAT = np.dtype(np.float32)
_SHORT = (float16.numpy, bfloat16.numpy)
_FLOATS = (_FLOAT, *_SHORT)


class Casting:
    """Autocast of one thread for CPU tensors."""

    only_casts = True

    def __init__(self) -> None:
        #: NumPy's dtype for products.
        self.target: Any = bfloat16.numpy
        #: Whether casts of parameters are kept.
        self.keeps = True
        #: In the slot.
        self.placed = False
        #: Tensor, array, version and cast, by id of the tensor, dtype, and whether gradients are wanted.
        self.kept: dict[Any, tuple[Any, Any, int, Any]] = {}

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Cast as the policy of ``op`` says and hand on."""
        below = SLOT.below(self)
        if PRECISION.call is not None:
            rule = policy.CPU.get(op.name)
            if rule is not None:
                chosen = rule if rule.__class__ is str else rule(args)  # type: ignore[operator]
                if chosen is not None:
                    return below(op, self.arguments(chosen, args), attrs)
        if isinstance(op, Composite) and not op.differentiable and MODE.enabled and _tracked(args):
            return op.decompose(table, *args, **attrs)
        return below(op, args, attrs)

    def call(
        self, chosen: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """``function`` on cast arguments, its own ops left alone."""
        args = self.arguments(chosen, args)
        kwargs = dict(zip(kwargs, self.arguments(chosen, tuple(kwargs.values())), strict=True))
        before, PRECISION.call = PRECISION.call, None
        try:
            return function(*args, **kwargs)
        finally:
            PRECISION.call = before

    def arguments(self, chosen: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args`` with their tensors (also in lists) in the dtype that ``chosen`` names."""
        if chosen == "given":
            return args
        if chosen == "lower":
            return tuple(
                [self.lowered(a) if isinstance(a, Value) else _inside(self.lowered, a) for a in args]
            )
        if chosen == "float32":
            return tuple([raised(a) if isinstance(a, Value) else _inside(raised, a) for a in args])
        found = {t.raw.dtype for t in args if isinstance(t, Value) and _castable(t)}
        if len(found) < 2:
            return args
        return tuple([_to(a, _FLOAT) if isinstance(a, Value) and _castable(a) else a for a in args])

    def lowered(self, tensor: Any) -> Any:
        """``tensor`` in the dtype for products; of a float32 leaf that requires grad the cast is kept."""
        target, raw = self.target, tensor.raw
        if raw.dtype == target or not _castable(tensor):
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


def raised(tensor: Any) -> Any:
    """``tensor`` in float32 if it has 16 bits."""
    return table.cast(tensor, dtype=_FLOAT) if tensor.raw.dtype in _SHORT and _castable(tensor) else tensor


def _to(tensor: Any, dtype: Any) -> Any:
    return tensor if tensor.raw.dtype == dtype else table.cast(tensor, dtype=dtype)


def _castable(tensor: Any) -> bool:
    """Of at most 32 bits, and on the CPU."""
    return tensor.raw.dtype in _FLOATS and tensor._backend.name == "cpu"


def _inside(convert: Callable[[Any], Any], value: Any) -> Any:
    """The tensors in a list or tuple converted."""
    if value.__class__ in (list, tuple) and any(isinstance(v, Value) for v in value):
        return value.__class__([convert(v) if isinstance(v, Value) else v for v in value])
    return value


def _tracked(args: tuple[Any, ...]) -> bool:
    return any(isinstance(a, Value) and (a._track or a._stale()) for a in args)
