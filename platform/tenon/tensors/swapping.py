"""Swap the contents of two tensor objects: PyTorch's ``swap_tensors``."""

from __future__ import annotations

import copyreg
import weakref
from typing import TYPE_CHECKING

from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError, GradError

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: The slots of every tensor except weak references, which belong to the object.
_OWN = tuple(name for name in Value.__slots__ if name != "__weakref__")


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Swap class, data, gradient, history and attributes of ``t1`` and ``t2``.

    References to one of them refer to the other's contents afterwards; neither may have weak references.
    Call it before a forward pass or after its backward pass: a recorded graph refers to the objects.
    """
    if WATCHERS.recorder is not None:
        raise CaptureError("swap_tensors cannot be recorded in a compiled program. Call it outside.")
    for name, tensor in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(tensor):
            raise GradError(
                f"Cannot swap {name} because it has weakref associated with it: the reference would lead"
                " to another tensor. Drop it first."
            )
    slots = [set(copyreg._slotnames(type(t))) for t in (t1, t2)]  # type: ignore[attr-defined]
    if slots[0] != slots[1]:
        raise GradError(
            f"Cannot swap t1 and t2 if they have different slots: only one of {type(t1).__name__} and "
            f"{type(t2).__name__} has {sorted(slots[0] ^ slots[1])}."
        )
    t1.__class__, t2.__class__ = type(t2), type(t1)
    for name in _OWN:
        slot = Value.__dict__[name]  # not a subclass's property of that name, as of lazy tensors
        first, second = slot.__get__(t1), slot.__get__(t2)
        slot.__set__(t1, second)
        slot.__set__(t2, first)
    for name in slots[0].difference(_OWN):
        swapped = [(hasattr(t, name), getattr(t, name, None)) for t in (t2, t1)]
        for tensor, (is_set, value) in zip((t1, t2), swapped, strict=True):
            if is_set:
                setattr(tensor, name, value)
            elif hasattr(tensor, name):
                delattr(tensor, name)
