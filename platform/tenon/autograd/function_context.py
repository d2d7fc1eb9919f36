"""``ctx``: the object that a custom Function's ``forward`` passes to its ``backward``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.autograd.saved_values import Saved, SavedNone
from tenon.engine.value import Value
from tenon.errors import FreedGraphError, GradError

if TYPE_CHECKING:
    import weakref

    from tenon.autograd.function import Function, FunctionNode
    from tenon.tensors.tensor import Tensor


#: A ``FunctionCtx`` on which ``forward`` stores attributes, whose names and types only it and ``backward``
#: define.
Context: TypeAlias = Any


class FunctionCtx:
    """Carries saved tensors, flags and any user attribute from ``forward`` to ``backward``."""

    needs_input_grad: tuple[bool, ...] = ()
    #: Whether ``backward`` receives zeros, not None, for an output without a gradient.
    materialize_grads: bool = True
    _materialize_non_diff_grads: bool = True
    #: The tensors passed to ``save_for_backward``, until ``_store_saved``, and to ``save_for_forward``.
    to_save: tuple[Tensor | None, ...] = ()
    to_push: tuple[Tensor | None, ...] = ()
    #: Whether ``jvp`` is running, for which ``saved_tensors`` are those of ``save_for_forward``.
    _runs_jvp: bool = False
    #: Set in ``forward`` by a Function that returns a view of its only tensor: in-place changes of the view
    #: then run ``forward`` again.
    _is_pure_view: bool = False
    dirty_tensors: tuple[Tensor, ...] = ()
    non_differentiable: tuple[Tensor, ...] = ()
    _saved: tuple[Saved | None, ...] | None = None
    _freed: bool = False
    #: Whether ``saved_tensors`` was read and cleared.
    _read: bool = False
    _forward_cls: type[Function] | None = None
    _node: weakref.ref[FunctionNode] | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save inputs, outputs (or None) for ``backward``, which reads them as ``saved_tensors``."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Save tensors (or None) for ``jvp``, which reads them as ``saved_tensors``."""
        self.to_push = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Mark the inputs that ``forward`` modified in place; it must return them."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Mark outputs as not differentiable; ``backward`` receives zeros for them."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether ``backward`` receives zeros (the default) or None for outputs without a gradient."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:  # tensors and None; each ``backward`` knows which it saved
        """The tensors (or None) that were saved; FreedGraphError after a backward pass that freed them.

        ModifiedValueError if one was modified in place since.
        """
        if self._runs_jvp:
            return self.to_push
        self._check_freed()
        if self._read:
            raise GradError(
                f"The saved tensors of {self._name()} can only be accessed once, as it sets"
                " clear_saved_tensors_on_access: store the result of the first access."
            )
        if self._saved is None:
            return self.to_save
        node = None if self._node is None else self._node()
        tensors = tuple(None if s is None else s.unpack(node) for s in self._saved)
        if self._forward_cls is not None and self._forward_cls.clear_saved_tensors_on_access:
            self._saved, self._read = None, True
        return tensors

    def _check_freed(self) -> None:
        if self._freed:
            raise FreedGraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after"
                " they have already been freed). Saved intermediate values of the graph are freed when you"
                " call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward"
                " through the graph a second time or if you need to access saved tensors after calling"
                f" backward. (function {self._name()})"
            )

    @property
    def _raw_saved_tensors(self) -> tuple[Saved | SavedNone, ...]:
        self._check_freed()
        return tuple(SavedNone() if s is None else s for s in self._saved or ())

    @property
    def saved_variables(self) -> tuple[Any, ...]:  # as ``saved_tensors``
        """Deprecated alias of ``saved_tensors``."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    def _name(self) -> str:
        return f"{type(self).__name__.removesuffix('Context')}Backward"

    def _store_saved(self, outputs: dict[int, int]) -> None:
        """Turn ``to_save`` into versioned values; ``outputs`` maps ids of tracked outputs to their index."""
        values, self.to_save = (
            self.to_save,
            (),
        )  # even if a hook raises: else there would be a reference cycle
        for position, value in enumerate(values):
            if value is not None and not isinstance(value, Value):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {position} is of type"
                    f" {type(value).__name__}"
                )
        self._saved = tuple(None if v is None else Saved(v, outputs.get(id(v)), self._name()) for v in values)
