"""``Value``, the base class of Tensor: what dispatch and the tape read. ``tensor.py`` adds the methods.

Slots hold what every op reads or writes; rarer fields (``grad``, hooks, names, user attributes) are in
the lazily created ``__dict__`` behind class-level defaults.

A view stores ``(base, parent, op, attrs)`` and the version at which its history was recorded. An in-place
change of the base increments the version; ``_refresh`` then replays the view's op on the base's new
history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

from tenon.engine import pending_copies
from tenon.engine.grad_mode import MODE, UNCOUNTED
from tenon.engine.types import Array
from tenon.errors import GradError, ViewError

if TYPE_CHECKING:
    from tenon.engine.tape import Node

#: ``Value._view``, a list as its version changes.
View: TypeAlias = list[Any]


class FixedView:
    """Replaces the op of a view whose history cannot be replayed, as it was created under no_grad or by a
    custom Function; ``message`` is the error if the view or its base is modified in place."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


_FORBIDDEN = (
    "A view was created in {mode} and {{}} inplace {where}. Given that this use case is ambiguous and"
    " error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace"
    " either both inside the {block} block (if you don't want the inplace to be tracked) or both outside (if"
    " you want the inplace to be tracked)."
)
NO_GRAD_VIEW = _FORBIDDEN.format(mode="no_grad mode", where="with grad mode enabled", block="no_grad")
INFERENCE_VIEW = _FORBIDDEN.format(mode="inference mode", where="in normal mode", block="inference_mode")


def refuse_saving() -> NoReturn:
    """Raise GradError: an inference tensor would have to be saved for backward."""
    raise GradError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode"
        " in computation tracked by autograd. To work around this, you can make a clone to get a normal"
        " tensor and use it in autograd, or use no_grad() instead of inference_mode()."
    )


def move_retained(x: Value, node: Node, index: int) -> None:
    """Move ``retain_grad`` of ``x`` from its old ``node`` to the node of its present value, after an in-place
    change: it refers to the tensor, not to the value that it had."""
    retained = node.retained or {}
    reference = retained.get(index)
    if reference is not None and reference() is x and x._node is not None:
        del retained[index]
        present = x._node
        if present.retained is None:
            present.retained = {}
        present.retained[x._index] = reference
        present.watched = True


class Value:
    """The slots of a tensor, and the few methods that dispatch needs."""

    __slots__ = (
        "__dict__", "__weakref__", "_backend", "_index", "_node", "_track", "_version_counter", "_view",
        "raw",
    )  # fmt: skip

    #: The class of tensors, unless a backend has one of its own; set by ``tensor.py``.
    plain: ClassVar[Any]

    raw: Array
    _backend: Any  # an EngineBackend; upper layers use what its class adds
    _node: Node | None
    _index: int
    #: Whether a gradient flows here: a leaf that requires grad, or an output of a recorded op.
    _track: bool
    #: The version number in a list shared by all views of the memory; None until the first view or in-place
    #: op. A second element marks memory that may be written without incrementing the version (``_expose``).
    _version_counter: list[int] | None
    #: ``[base, parent, op or FixedView, attrs, version]`` of a view, with ``(op, index)`` appended for one of
    #: several outputs of a recorded op.
    _view: View | None

    if TYPE_CHECKING:  # attributes of Tensor: the engine meets no other subclass

        def __getattr__(self, name: str) -> Any: ...  # of any type
        def __setattr__(self, name: str, value: object) -> None: ...
        def __add__(self, other: object, /) -> Any: ...  # a Tensor

    @staticmethod
    def make(array: Array, backend: Any) -> Any:  # a backend; a tensor of the class that it states
        """Wrap an array as an untracked tensor."""
        kind = backend.tensor_type
        return Value.plain._of(array, backend) if kind is None else kind._of(backend.as_array(array), backend)

    def _counter(self) -> list[int]:
        counter = self._version_counter
        if counter is None:
            counter = self._version_counter = [0]
        return counter

    def _settle(self) -> None:
        """Wait until the memory may be written: until no copy of it is being made in the background."""
        if pending_copies.PENDING and self._version_counter is not None:
            pending_copies.wait((self._version_counter,))

    def _expose(self) -> None:
        """Mark the memory as writable from outside, without incrementing the version."""
        self._settle()
        counter = self._counter()
        if len(counter) == 1:
            counter.append(1)

    def _refresh(self) -> None:
        """Replay a view's op if its memory was modified in place after its history was recorded."""
        view = self._view
        assert view is not None
        counter = self._version_counter
        if counter is None or counter[0] == view[4]:
            return
        if view[2].__class__ is FixedView:
            if view[0]._track:
                raise ViewError(
                    view[2].message.format("its base or another view of its base has been modified")
                )
            view[4] = counter[0]
            return
        parent = view[1]
        if parent._view is not None:
            parent._refresh()
        if parent._track:
            previous, MODE.enabled = MODE.enabled, True
            try:
                fresh = view[2](parent, **view[3])
            finally:
                MODE.enabled = previous
            if fresh.raw.dtype == view[0].raw.dtype and fresh._node is not None and not MODE.replay:
                fresh._node.title = "AsStridedBackward0"  # PyTorch's name where it uses as_strided
            node, index = self._node, self._index
            self._node, self._index, self._track = fresh._node, fresh._index, fresh._track
            if node is not None and node.retained is not None:
                move_retained(self, node, index)
        else:
            self._node, self._index, self._track = None, 0, False
        view[4] = counter[0]

    def _stale(self) -> bool:
        """Whether an untracked view now needs a gradient through its base; if so its history is replayed."""
        view = self._view
        if view is None or not view[0]._track:
            return False
        if view[2].__class__ is FixedView and not MODE.enabled:
            return self._track  # invalid for autograd, but may still be read
        self._refresh()
        return self._track


def uncounted(args: Iterable[object]) -> bool:
    """Whether all of ``args`` are inference tensors; a number counts as an ordinary tensor, as in torch."""
    return all(a is None or (isinstance(a, Value) and a._version_counter is UNCOUNTED) for a in args)
