"""Autograd methods: ``backward``, ``retain_grad`` and hooks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tenon.dtypes import dtype
from tenon.errors import DTypeError, GradError
from tenon.tensors.methods.family import Family

if TYPE_CHECKING:
    from tenon.engine.tape import Node
    from tenon.tensors.autograd.handles import RemovableHandle
    from tenon.tensors.autograd.nodes import AccumulateGrad, GradientEdge
    from tenon.tensors.tensor import Tensor
from tenon.tensors.autograd.hooks import LeafHooks, register_in, tensor_hooks
from tenon.tensors.autograd.passes import backward

#: Hooks by the number of their handle.
Hooks: TypeAlias = MutableMapping[int, Callable[..., "Tensor | None"]]


class Autograd(Family):
    """Methods that start backward passes and register hooks."""

    __slots__ = ()

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | GradientEdge | Sequence[Tensor | GradientEdge] | None = None,
    ) -> None:
        """Add the gradients of this tensor to ``grad`` of the leaves that it was computed from, or of
        ``inputs``.

        ``gradient``, of this tensor's shape, is required unless it has one element. ``retain_graph`` keeps
        the graph for another pass, ``create_graph`` records this one. GradError without a graph.
        """
        gradients = None if gradient is None else [gradient]
        backward([self], gradients, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call ``hook(grad)`` when this tensor's gradient is computed; it may return another gradient.

        Return a handle that removes the hook. GradError unless the tensor requires grad.
        """
        if not self.requires_grad:
            raise GradError("cannot register a hook on a tensor that doesn't require gradient")
        return register_in(tensor_hooks(self), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call ``hook(leaf)`` after a gradient was accumulated into this leaf; return a handle.

        GradError for non-leaves and tensors that do not require grad.
        """
        if not self.requires_grad:
            raise GradError("cannot register a hook on a tensor that doesn't require gradient")
        if self._node is not None:
            raise GradError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        hooks = self.__dict__.get("_post_accumulate_hooks")
        if hooks is None:
            hooks = self.__dict__["_post_accumulate_hooks"] = LeafHooks()
        return register_in(hooks, hook)

    def retain_grad(self) -> None:
        """Store this non-leaf's gradient in ``grad`` in the next backward pass."""
        if not self.requires_grad:
            raise GradError("can't retain_grad on Tensor that has requires_grad=False")
        node = self.grad_fn
        if node is None:
            return
        if node.retained is None:
            node.retained = {}
        node.retained[self._index] = weakref.ref(self)
        node.watched = True

    @property
    def grad_dtype(self) -> dtype | None:
        """The dtype of this leaf's gradient: its own unless another is set; None accepts any."""
        self._need_leaf("accessed")
        return self.__dict__.get("_grad_dtype", self.dtype)

    @grad_dtype.setter
    def grad_dtype(self, value: dtype | None) -> None:
        self._need_leaf("set")
        if value is not None and not isinstance(value, dtype):
            raise TypeError(f"grad_dtype must be a torch.dtype or None, but got {type(value).__name__}")
        grad = self._grad
        if value is not None and grad is not None and grad.dtype != value:
            raise DTypeError(
                f"Cannot set grad_dtype to '{value}' because there is already a gradient with dtype"
                f" '{grad.dtype}'. Please clear the gradient (.grad = None) before changing grad_dtype, or"
                " ensure the new grad_dtype matches the existing gradient's dtype."
            )
        self.__dict__["_grad_dtype"] = value

    def _need_leaf(self, verb: str) -> None:
        if self.grad_fn is not None:
            raise GradError(f"grad_dtype can only be {verb} on leaf tensors.")

    @property
    def _grad_fn(self) -> Node | AccumulateGrad | None:
        return self.grad_fn

    @_grad_fn.deleter
    def _grad_fn(self) -> None:
        raise GradError("Deletion of _grad_fn not allowed. Detach tensor instead!")

    @property
    def _backward_hooks(self) -> Hooks | None:
        node = self.grad_fn
        if node is None:
            return self.__dict__.get("_hooks")
        return None if node.hooks is None else node.hooks.get(self._index)

    @_backward_hooks.setter
    def _backward_hooks(self, hooks: Hooks | None) -> None:
        registered = tensor_hooks(self)
        for key in list(registered):
            del registered[key]
        for key, hook in (hooks or {}).items():
            registered[key] = hook

    @_backward_hooks.deleter
    def _backward_hooks(self) -> None:
        raise GradError("Deletion of _backwards_hooks not allowed! Remove each by its handle.")

    @property
    def retains_grad(self) -> bool:
        """Whether this is a non-leaf whose gradient is stored in ``grad``: see ``retain_grad``."""
        node = self._node
        if node is None or node.retained is None:
            return False
        reference = node.retained.get(self._index)
        return reference is not None and reference() is self
