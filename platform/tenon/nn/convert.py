"""Conversion of a module: change the device, dtype or storage of all its parameters and buffers.

Everything goes through ``_apply(fn)``, which third-party modules override. Parameters keep their identity:
their data is replaced, so that an optimizer created before the conversion still refers to them. Only moves to
or from the meta device create new parameters, as in PyTorch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

from tenon import dtypes
from tenon.device import Device
from tenon.errors import GradError, ModuleError, ModuleTypeError, NoDataError
from tenon.nn.conversion_settings import (
    get_overwrite_module_params_on_conversion,
    get_swap_module_params_on_conversion,
)
from tenon.nn.parameter import Parameter, is_lazy
from tenon.nn.traversal import Traversal
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import empty_like
from tenon.tensors.methods.convert import parse_to
from tenon.tensors.swapping import swap_tensors
from tenon.tensors.tensor import Tensor


class Conversion(Traversal):
    """Mixin of Module: conversion. Every method changes the module in place and returns it."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if recurse:
            for child in self.children():
                child._apply(fn)
        overwrite = get_overwrite_module_params_on_conversion()
        swap = get_swap_module_params_on_conversion()
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            if is_lazy(parameter):
                parameter.data = fn(parameter.data)
            elif swap:
                _swap(parameter, fn, f"{type(self).__name__}.{name}")
            elif overwrite:
                self._parameters[name] = _converted(parameter, fn)
            else:
                self._parameters[name] = _replace_data(parameter, fn)
        for name, buffer in self._buffers.items():
            if is_lazy(buffer):
                buffer.data = fn(buffer.data)
            elif buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:  # the overloads of Tensor.to
        """Move and cast: ``to(device, dtype)``, ``to(dtype)``, ``to(tensor)``; integers keep their dtype.

        >>> from tenon import nn, float64
        >>> nn.Linear(2, 2).to(float64).weight.dtype
        torch.float64
        """
        if "tensor" in kwargs:
            kwargs["other"] = kwargs.pop("tensor")
        memory_format = kwargs.get("memory_format")
        device, dtype, copy = parse_to(args, kwargs)
        if copy:
            raise ModuleError(
                "Module.to() does not accept copy argument: it changes the module itself. "
                "Use copy.deepcopy(module)."
            )
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise ModuleTypeError(
                    f"nn.Module.to only accepts floating point or complex dtypes, but got desired "
                    f"dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature, and some modules might not work as expected when "
                    "using "
                    "complex tensors as parameters or buffers.",
                    stacklevel=2,
                )

        def convert(t: Tensor) -> Tensor:
            if device is not None and t.device.type == "meta" and device.type != "meta":
                raise NoDataError(
                    "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead "
                    "of torch.nn.Module.to() when moving module from meta to a different device."
                )
            kind = dtype if t.is_floating_point() or t.is_complex() else None
            format_of_t = memory_format if t.dim() in (4, 5) else None
            return t.to(device, kind, memory_format=format_of_t)

        return self._apply(convert)

    def to_empty(self, *, device: Device | str | int | None, recurse: bool = True) -> Self:
        """Give all parameters and buffers uninitialised memory on ``device``, as after ``device="meta"``."""
        return self._apply(lambda t: empty_like(t, device=device), recurse=recurse)

    def type(self, dst_type: dtypes.dtype | str) -> Self:
        """Cast all parameters and buffers."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Self:
        """Cast floating parameters and buffers to float32."""
        return self._cast(dtypes.float32)

    def double(self) -> Self:
        """Cast floating parameters and buffers to float64."""
        return self._cast(dtypes.float64)

    def half(self) -> Self:
        """Cast floating parameters and buffers to float16."""
        return self._cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floating parameters and buffers to bfloat16."""
        return self._cast(dtypes.bfloat16)

    def _cast(self, dtype: dtypes.dtype) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def cpu(self) -> Self:
        """Move all parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Device | str | int | None = None) -> Self:
        """Move all parameters and buffers to a CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def ipu(self, device: Device | str | int | None = None) -> Self:
        """Move to an IPU, if a plugin provides that backend."""
        return self._move("ipu", device)

    def xpu(self, device: Device | str | int | None = None) -> Self:
        """Move to an XPU, if a plugin provides that backend."""
        return self._move("xpu", device)

    def mtia(self, device: Device | str | int | None = None) -> Self:
        """Move to an MTIA device, if a plugin provides that backend."""
        return self._move("mtia", device)

    def _move(self, kind: str, device: Device | str | int | None) -> Self:
        index = device if isinstance(device, int) else None if device is None else Device(device).index
        return self._apply(lambda t: t.to(Device(kind, index)))

    def share_memory(self) -> Self:
        """Move all parameters and buffers to memory that other processes can map."""
        for member in (*self.parameters(), *self.buffers()):
            if is_lazy(member):
                member.share_memory_()  # raises before anything has been moved
        return self._apply(lambda t: t.share_memory_())


def _converted(parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> Parameter:
    """Return a new parameter with ``fn(parameter)`` as data, and ``fn`` of its gradient if it has one."""
    with no_grad():
        return _replacement(fn(parameter), parameter, fn)


def _replacement(data: Tensor, parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> Parameter:
    """Return a new parameter with ``data`` that replaces ``parameter``."""
    with no_grad():
        new = Parameter(data.detach(), parameter.requires_grad)
        if parameter.grad is not None:
            new.grad = fn(parameter.grad).requires_grad_(parameter.grad.requires_grad)
    return new


def _replace_data(parameter: Parameter, fn: Callable[[Tensor], Tensor]) -> Parameter:
    """Replace the data of ``parameter`` and of its gradient by the results of ``fn``; return the parameter.

    Moves to or from the meta device create a new parameter, as in PyTorch; modules that shared the old one
    share the new one.
    """
    grad = parameter.grad
    with no_grad():
        data = fn(parameter)
        if (data.device.type == "meta") != (parameter.device.type == "meta"):
            successor = parameter.__dict__.get("_became")
            if successor is None or successor.device != data.device or successor.dtype != data.dtype:
                successor = parameter.__dict__["_became"] = _replacement(data, parameter, fn)
            return successor
        new_grad = None if grad is None else fn(grad)
    if data is not parameter:
        parameter.data = data
    if grad is not None and new_grad is not grad:
        grad.data = new_grad
    return parameter


def _swap(parameter: Tensor, fn: Callable[[Tensor], Tensor], name: str) -> None:
    """Convert by ``swap_tensors``, which also gives the parameter the class and attributes of the result."""
    grad = parameter.grad
    with no_grad():
        data = fn(parameter)
        new_grad = None if grad is None else fn(grad)
    try:
        swap_tensors(parameter, Parameter(data.detach(), parameter.requires_grad))
        if grad is not None and new_grad is not grad:
            swap_tensors(grad, new_grad.requires_grad_(grad.requires_grad))  # type: ignore[union-attr]
    except GradError as error:
        raise ModuleError(f"_apply(): Couldn't swap {name}: {error}") from error
    parameter.grad = grad
