"""torch.autograd: ``backward``, ``grad``, custom ``Function``, numerical checks, anomaly detection.

The tape and the backward pass themselves are in ``tenon.engine``.
"""

import importlib

from tenon import ops as _ops  # noqa: F401 - registers the ops
from tenon.autograd import _functions as _functions
from tenon.autograd import forward_ad, functional, graph
from tenon.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from tenon.autograd.function import Function
from tenon.autograd.gradcheck import gradcheck, gradgradcheck
from tenon.autograd.graph import _unsafe_preserve_version_counter as _unsafe_preserve_version_counter
from tenon.autograd.variable import Variable
from tenon.compat.finder import is_second_name
from tenon.compat.overriding import handle_torch_function, has_torch_function, is_tensor_like
from tenon.compat.saved_attributes import SavedTensor
from tenon.compat.utils.packages import functions_first as _functions_first
from tenon.plugins import registry
from tenon.tensors.autograd.grad_mode import _force_original_view_tracking as _force_original_view_tracking
from tenon.tensors.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_multithreading_enabled,
    is_view_replay_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from tenon.tensors.autograd.passes import _calculate_shape as _calculate_shape
from tenon.tensors.autograd.passes import backward, grad

__all__ = [
    "Function",
    "SavedTensor",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "handle_torch_function",
    "has_torch_function",
    "inference_mode",
    "is_grad_enabled",
    "is_multithreading_enabled",
    "is_tensor_like",
    "is_view_replay_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

_functions_first(__name__)


def __getattr__(name: str) -> object:
    if is_second_name(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    if name == "kineto_available":
        return registry.resolve("profilers", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
