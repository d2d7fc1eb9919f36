"""PyTorch's module ``torch._C``: the names of its C++ side that Python code uses and that apply here."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from tenon.autograd.error_nodes import DelayedError, UndefinedGrad
from tenon.autograd.saved_values import StandaloneSaved
from tenon.compat import accelerator, rerouting
from tenon.compat.backends import mkldnn
from tenon.compat.backends.cpu import get_cpu_capability as _get_cpu_capability  # noqa: F401
from tenon.compat.jit import ScriptDict, ScriptFunction, ScriptList, ScriptMethod  # noqa: F401
from tenon.compat.overrides import TorchFunctionMode
from tenon.compat.overriding import STATE as _OVERRIDES
from tenon.compat.overriding import (  # noqa: F401 - PyTorch defines them here
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
)
from tenon.compat.overriding import disabled as _disabled_torch_function_impl  # noqa: F401
from tenon.compat.saved_attributes import SavedTensor
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.engine.running_pass import PASS
from tenon.engine.sweep import Sweep
from tenon.errors import ArgumentError, ShapeError
from tenon.nn import functional as _functional
from tenon.tensors.autograd.grad_mode import is_grad_enabled  # noqa: F401 - PyTorch defines it here
from tenon.tensors.autograd.nodes import AccumulateGrad
from tenon.tensors.autograd.saved_tensor_hooks import hooks_are_enabled
from tenon.tensors.methods.convert import parse_to
from tenon.tensors.tensor import Tensor

__all__: list[str] = []


#: ``torch.linalg`` and ``torch.fft`` work whatever libraries are installed.
has_lapack = has_spectral = True


class _TorchFunctionState(Enum):
    """Which ``__torch_function__`` handlers are enabled in this thread."""

    ENABLED = 0
    SUBCLASSES_DISABLED = 1
    ALL_DISABLED = 2


def _get_torch_function_state() -> _TorchFunctionState:
    return _TorchFunctionState(_OVERRIDES.off)


def _set_torch_function_state(state: _TorchFunctionState) -> None:
    _OVERRIDES.off = state.value


def _len_torch_function_stack() -> int:
    """Return the number of active modes of ``torch.overrides`` in this thread."""
    return len(_OVERRIDES.modes)


def _get_function_stack_at(level: int) -> TorchFunctionMode:
    return _OVERRIDES.modes[level]


def _push_on_torch_function_stack(mode: TorchFunctionMode) -> None:
    rerouting.reroute(mode=mode)
    _OVERRIDES.modes.append(mode)


def _pop_torch_function_stack() -> TorchFunctionMode:
    mode = _OVERRIDES.modes.pop()
    rerouting.restore(mode)
    return mode


def _get_privateuse1_backend_name() -> str:
    """Return PyTorch's name of the device reserved for other backends; it is not used here."""
    return "privateuseone"


class _ConvBackend(Enum):
    """PyTorch's names of its implementations of convolution."""

    CudaDepthwise2d = 0
    CudaDepthwise3d = 1
    Cudnn = 2
    CudnnTranspose = 3
    Empty = 4
    Miopen = 5
    MiopenDepthwise = 6
    MiopenTranspose = 7
    Mkldnn = 8
    MkldnnEmpty = 10
    NnpackSpatial = 11
    Overrideable = 12
    Slow2d = 13
    Slow3d = 14
    SlowDilated2d = 15
    SlowDilated3d = 16
    SlowTranspose2d = 17
    SlowTranspose3d = 18
    Winograd3x3Depthwise = 19
    Xnnpack2d = 20
    Mps = 21
    MpsTranspose = 22


def _select_conv_backend(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    bias_sizes: Sequence[int] | None = None,
) -> _ConvBackend:
    """Return the native implementation that PyTorch would select, without MKL or cuDNN.

    It depends on whether the convolution is empty, transposed or dilated, and on the number of dimensions
    (one counts as two). The backend decides which kernel runs here.
    """
    if input.shape[0] == 0 or input.shape[1] == 0:
        return _ConvBackend.Empty
    if input.numel() == 0:
        raise ShapeError(
            f"Only zero batch or zero channel inputs are supported, but got input shape: {list(input.shape)}."
        )
    flat = input.dim() < 5
    if transposed:
        return _ConvBackend.SlowTranspose2d if flat else _ConvBackend.SlowTranspose3d
    if any(step != 1 for step in dilation):
        return _ConvBackend.SlowDilated2d if flat else _ConvBackend.SlowDilated3d
    return _ConvBackend.Slow2d if flat else _ConvBackend.Slow3d


class _Functions:
    """``torch._C._nn``: functions of neural networks, and the parser of the arguments of ``Module.to``."""

    @staticmethod
    def _parse_to(*args: object, **kwargs: object) -> tuple[Device | None, dtype | None, bool, object]:
        """Return ``(device, dtype, non_blocking, memory_format)`` of the arguments of ``to``."""
        device, dtype, _ = parse_to(args, kwargs)
        flags = [each for each in args if isinstance(each, bool)]
        return (
            device,
            dtype,
            bool(kwargs.get("non_blocking", flags[0] if flags else False)),
            kwargs.get("memory_format"),
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:  # a function of nn.functional
        return getattr(_functional, name)


_nn = _Functions()


class _functions:
    """``torch._C._functions``: node classes that code traversing a graph checks for."""

    AccumulateGrad = AccumulateGrad
    DelayedError = DelayedError
    UndefinedGrad = UndefinedGrad


class _autograd:
    """``torch._C._autograd``: saved tensors of nodes, and version counters."""

    SavedTensor = SavedTensor

    @staticmethod
    def _make_saved_tensor(tensor: Tensor, is_output: bool = False) -> StandaloneSaved:
        """Save ``tensor`` as a node does, through the active hooks."""
        return StandaloneSaved(tensor, is_output)

    @staticmethod
    def _saved_tensors_hooks_is_enabled() -> bool:
        """Whether hooks on saved tensors are enabled."""
        return hooks_are_enabled()

    @staticmethod
    def _unsafe_set_version_counter(tensors: Sequence[Tensor], versions: Sequence[int]) -> None:
        """Set the version counters of ``tensors``."""
        for tensor, version in zip(tensors, versions, strict=True):
            if version < 0:
                raise ArgumentError(f"Cannot set a version counter to a value below 0: got {version}.")
            tensor._counter()[0] = version


_passes: weakref.WeakKeyDictionary[Sweep, int] = weakref.WeakKeyDictionary()
_next_pass = itertools.count().__next__


def _current_graph_task_id() -> int:
    """Return the number of the current backward pass, assigned at the first query; -1 outside of one."""
    if PASS.sweep is None:
        return -1
    if PASS.sweep not in _passes:
        _passes[PASS.sweep] = _next_pass()
    return _passes[PASS.sweep]


class _WeakTensorRef:
    """A weak reference that reports whether a tensor still exists."""

    def __init__(self, tensor: Tensor) -> None:
        self._reference = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor has been freed."""
        return self._reference() is None


def _get_mkldnn_enabled() -> bool:
    """Return the flag that scripts set in ``torch.backends.mkldnn``."""
    return mkldnn.enabled


def _set_mkldnn_enabled(enabled: bool) -> None:
    """Set the flag of ``torch.backends.mkldnn``; it has no effect."""
    mkldnn.enabled = enabled


def _log_api_usage_once(*args: object) -> None:
    """Do nothing: usage is not reported."""


def _get_tracing_state() -> None:
    """Return None: nothing is traced for TorchScript."""


def _get_accelerator(check: bool | None = None) -> Device:
    """Return the current accelerator, or the CPU if there is none."""
    return accelerator.current_accelerator() or Device("cpu")
