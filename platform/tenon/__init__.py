"""tenon: PyTorch's names, everything behind them a plugin, MPI from a plain pip install.

``import tenon as torch`` runs PyTorch's Modules note. Importing this package loads NumPy and the core,
but no plugin, no GPU library and no MPI: names are found at their first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import Any

from tenon.distributed import startup as _startup

__version__ = "0.1.0"

#: Public name -> where it lives. ``"module"`` alone is a submodule.
_HOMES: dict[str, str] = {}


def _home(module: str, names: str) -> None:
    for name in names.split():
        _HOMES[name] = module


_home("tenon.core.tensor", "Tensor")
_home("tenon.core.size", "Size")
_home("tenon.core.create", "tensor as_tensor from_numpy")
_home(
    "tenon.core.factories",
    "zeros ones empty full zeros_like ones_like empty_like full_like arange linspace logspace eye scalar_tensor tril_indices "
    "triu_indices rand randn randint randperm rand_like randn_like randint_like normal",
)
_home("tenon.core.grad_mode", "no_grad enable_grad set_grad_enabled inference_mode is_grad_enabled is_inference_mode_enabled")
_home("tenon.core.promotion", "result_type")
_home(
    "tenon.dtypes",
    "dtype bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 "
    "promote_types can_cast get_default_dtype set_default_dtype",
)
_home("tenon.device", "get_default_device set_default_device")
_home("tenon.random", "Generator default_generator manual_seed seed initial_seed get_rng_state set_rng_state")
_home("tenon.serialize", "save load")

_RENAMED = {
    "device": ("tenon.device", "Device"),
    "half": ("tenon.dtypes", "float16"),
    "float": ("tenon.dtypes", "float32"),
    "double": ("tenon.dtypes", "float64"),
    "short": ("tenon.dtypes", "int16"),
    "int": ("tenon.dtypes", "int32"),
    "long": ("tenon.dtypes", "int64"),
    "cfloat": ("tenon.dtypes", "complex64"),
    "cdouble": ("tenon.dtypes", "complex128"),
}
_SUBMODULES = frozenset(
    "autograd cuda distributed func nn ops optim plugins random serialize testing training utils".split()
)


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        module, attribute = _RENAMED[name]
    elif name in _HOMES:
        module, attribute = _HOMES[name], name
    elif name in _SUBMODULES:
        return importlib.import_module(f"tenon.{name}")
    else:
        functions = importlib.import_module("tenon.functions")
        if name in functions.__all__:
            value = globals()[name] = getattr(functions, name)
            return value
        raise AttributeError(f"module 'tenon' has no attribute {name!r}")
    importlib.import_module("tenon.ops")  # a tensor without its ops can do nothing
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    functions = importlib.import_module("tenon.functions")
    return sorted({*globals(), *_HOMES, *_RENAMED, *_SUBMODULES, *functions.__all__})


_startup.prepare()  # under a launcher: thread counts, before NumPy is imported, and failure hooks
