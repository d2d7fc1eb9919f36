"""PyTorch's path ``nn.modules.module``; the code is in ``tenon.nn.module`` and ``tenon.nn.hooks``."""

from tenon.core.handle import RemovableHandle
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
