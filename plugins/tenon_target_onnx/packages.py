"""The packages ``onnx`` and ``onnxruntime``, imported where they are needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

from tenon.extend import errors

_HINT = "Run: pip install 'tenon-platform[onnx]'"


def onnx_package() -> ModuleType:
    """Return the package ``onnx`` with the modules that are used; UnsupportedError states how to install
    it."""
    try:
        for name in ("checker", "helper", "numpy_helper", "shape_inference"):
            importlib.import_module(f"onnx.{name}")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise errors.UnsupportedError(f"writing ONNX needs the package onnx ({error}). {_HINT}.") from error


def runtime() -> ModuleType:
    """Return the package ``onnxruntime``; UnsupportedError states how to install it."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise errors.UnsupportedError(
            f"running ONNX needs the package onnxruntime ({error}). {_HINT}."
        ) from error


def reason(*packages: Callable[[], ModuleType]) -> str | None:
    """Return why one of the packages cannot be used, or None."""
    try:
        for package in packages:
            package()
    except errors.UnsupportedError as error:
        return str(error)
    return None
