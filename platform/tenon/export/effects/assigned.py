"""Tensors that the captured call assigns to attributes of modules: ``self.mean = self.mean + x.mean()``.

A buffer, or another tensor that the call read before, is state: the new value becomes a write. Caches and
other new tensors are not part of the graph. The modules have their tensors back after the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tenon.errors import CaptureError
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.call_site import user_line
from tenon.tensors.generation import Generation
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.export.recorder import CaptureRecorder

_ABSENT = object()


class AssignedTensors:
    """The attributes of modules that were assigned, with what they were before."""

    def __init__(self) -> None:
        #: By id of the module and name: the module, the name, the value before, and where it was assigned.
        self._before: dict[tuple[int, str], tuple[Module, str, object, str]] = {}

    def note(self, module: Module, name: str) -> None:
        """An attribute is about to be assigned."""
        key = (id(module), name)
        if key not in self._before:
            self._before[key] = (module, name, _value(module, name), user_line())

    def restore(self) -> None:
        """Undo the assignments of tensors; those of parameters, modules and plain values remain."""
        for module, name, before, _ in reversed(self._before.values()):
            now = _value(module, name)
            if now is before or not (_is_plain_tensor(now) or _is_plain_tensor(before)):
                continue
            if name in module._buffers and before is not _ABSENT:
                module._buffers[name] = _any(before)
            elif name in module._buffers:
                del module._buffers[name]
            elif before is _ABSENT:
                module.__dict__.pop(name, None)
            else:
                module.__dict__[name] = before
            Generation.attributes += 1
        self._before.clear()

    def new_states(self, recorder: CaptureRecorder) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each state that was replaced, and what by; CaptureError for what is no state then."""
        for module, name, before, where in self._before.values():
            now = _value(module, name)
            if now is before or not isinstance(before, Tensor) or isinstance(before, Parameter):
                continue
            buffer = name in module._buffers
            if recorder.created_inside(before) or not (buffer or recorder.values.find(before.raw)):
                continue
            if not isinstance(now, Tensor):
                now_text: object = now
            elif (now.raw.shape, now.raw.dtype) == (before.raw.shape, before.raw.dtype):
                yield before, now
                continue
            else:
                now_text = f"a tensor of shape {list(now.shape)} and dtype {now.dtype}"
            raise CaptureError(
                f"{'the buffer' if buffer else 'the tensor'} {name!r} of {type(module).__name__}, of shape "
                f"{list(before.shape)} and dtype {before.dtype}, becomes {now_text} at {where}. States of a "
                "graph keep their shape and dtype: return the new value instead."
            )


def _value(module: Module, name: str) -> object:
    if name in module.__dict__.get("_buffers", ()):
        return module._buffers[name]
    return module.__dict__.get(name, _ABSENT)


def _is_plain_tensor(value: object) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, Parameter)


def _any(value: Any) -> Any:  # of any type
    return value
