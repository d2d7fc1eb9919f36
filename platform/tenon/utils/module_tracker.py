"""``torch.utils.module_tracker``: track which modules are running, forward or backward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self
from weakref import WeakKeyDictionary

from tenon.autograd.graph import register_multi_grad_hook
from tenon.engine.running_pass import PASS, queue_callback
from tenon.engine.types import Nested
from tenon.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from tenon.nn.module import Module
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.pytree import tree_leaves
from tenon.tensors.tensor import Tensor

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Within a block, ``parents`` has the names of the modules that are running, forward or backward.

    Names begin with the class of the outermost module; "Global" is always among them. A backward pass is in a
    module from the gradients of its outputs to those of its inputs; ``is_bw`` is whether one is running.

    >>> import tenon
    >>> class Show(tenon.nn.Module):
    ...     def forward(self, x):
    ...         print(sorted(tracker.parents))
    ...         return x
    >>> with ModuleTracker() as tracker:
    ...     out = tenon.nn.Sequential(Show())(tenon.ones(1))
    ['Global', 'Sequential', 'Sequential.0']
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: WeakKeyDictionary[Module, str] = WeakKeyDictionary()
        self._hooks: list[RemovableHandle] = []

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is running."""
        return PASS.inside > 0

    def __enter__(self) -> Self:
        self._hooks.append(register_module_forward_pre_hook(self._before))
        self._hooks.append(register_module_forward_hook(self._after))
        return self

    def __exit__(self, *exc: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _name(self, module: Module) -> str:
        if module not in self._names:
            root = type(module).__name__
            for path, part in module.named_modules(prefix=root):
                self._names[part] = path
        return self._names[module]

    def _before(self, module: Module, args: Nested) -> None:
        name = self._name(module)
        self.parents.add(name)
        self._watch(args, partial(self._leave, name))

    def _after(self, module: Module, args: Nested, output: Nested) -> None:
        name = self._name(module)
        self._leave(name)
        self._watch(output, partial(self._enter_backward, name))

    def _watch(self, values: Nested, call: Callable[[object], None]) -> None:
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if tensors:
            self._hooks.append(register_multi_grad_hook(tensors, call))

    def _enter_backward(self, name: str, grads: object = None) -> None:
        self.parents.add(name)
        queue_callback(self._leave_all)  # some inputs may get no gradient

    def _leave(self, name: str, grads: object = None) -> None:
        self.parents.discard(name)

    def _leave_all(self) -> None:
        self.parents = {"Global"}
