"""PyTorch's path ``nn.modules.module``; the code is in ``tenon.nn.module`` and ``tenon.nn.hooks``.

The dictionaries of global hooks can be read here and also assigned, as tests and profilers do to remove all
hooks: ``nn.modules.module._global_forward_hooks = OrderedDict()``.
"""

import sys
import types
from typing import Any

from tenon.nn import hooks
from tenon.nn.hooks import (
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from tenon.nn.module import Module
from tenon.nn.state import EXTRA_STATE_KEY_SUFFIX as _EXTRA_STATE_KEY_SUFFIX
from tenon.nn.state import IncompatibleKeys as _IncompatibleKeys
from tenon.tensors.autograd.handles import RemovableHandle

__all__ = [
    "_EXTRA_STATE_KEY_SUFFIX",
    "Module",
    "RemovableHandle",
    "_IncompatibleKeys",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_GLOBALS = frozenset(
    name for name, value in vars(hooks).items() if name.startswith("_global_") and isinstance(value, dict)
)


class _HooksModule(types.ModuleType):
    """A module in which the global hook dictionaries are those of ``tenon.nn.hooks``."""

    def __getattr__(self, name: str) -> object:
        if name in _GLOBALS:
            return getattr(hooks, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:  # for the global dictionaries a mapping
        if name in _GLOBALS:
            table = getattr(hooks, name)
            hooks_by_id = dict(value)  # before the clear, as it may be the same dict
            table.clear()
            table.update(hooks_by_id)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _HooksModule
