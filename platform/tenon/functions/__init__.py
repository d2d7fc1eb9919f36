"""PyTorch's top-level functions by name. Most call a tensor's method on the first argument (``derived.py``).

``tenon.__getattr__`` looks up names here that no module of the package defines.
"""

from __future__ import annotations

from collections.abc import Callable

from tenon.compat import rerouting
from tenon.dtypes import can_cast, promote_types
from tenon.functions import (
    checks,
    contraction,
    control_flow,
    creation,
    deprecated_creation,
    factorizations,
    foreach,
    histograms,
    joining,
    limits,
    mapped_files,
    numerical_gradient,
    predicates,
    searching,
    settings,
    short_time_fourier,
    tensor_types,
    torch_factorizations,
    view_copies,
)
from tenon.functions.derived import derive, derive_all
from tenon.functions.einsum import einsum
from tenon.kernels.promotion import result_type
from tenon.tensors.creation import create
from tenon.tensors.methods.function_forms import FUNCTION_FORMS

_FAMILIES = (
    checks, contraction, control_flow, creation, deprecated_creation, factorizations, foreach, histograms,
    joining, limits, mapped_files, numerical_gradient, predicates, searching, settings, short_time_fourier,
    tensor_types, torch_factorizations, view_copies,
)  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., object]] = derive_all() | {
    name: getattr(m, name) for m in _FAMILIES for name in m.__all__
}
_OF_DATA = (create.as_tensor, create.from_numpy, create.tensor)
_FUNCTIONS |= {f.__name__: f for f in (einsum, result_type, can_cast, promote_types)}

__all__ = sorted(_FUNCTIONS)

#: Modules whose functions are not subject to ``__torch_function__``.
_NOT_OVERRIDABLE_MODULES = (checks, control_flow, settings, tensor_types)
_NOT_OVERRIDABLE = {"broadcast_shapes", "is_storage", "is_tensor", "typename"}.union(
    *(m.__all__ for m in _NOT_OVERRIDABLE_MODULES)
)
rerouting.register(
    "torch",
    {n: f for n, f in _FUNCTIONS.items() if n not in _NOT_OVERRIDABLE} | {f.__name__: f for f in _OF_DATA},
    bare=[
        *(f.__name__ for f in _OF_DATA),
        *(n for n in creation.__all__ if n.endswith("window")),
        "asarray",
        "from_file",
        "frombuffer",
        "range",
    ],
)


def __getattr__(name: str) -> Callable[..., object]:
    if name not in _FUNCTIONS:
        if name not in FUNCTION_FORMS:  # which has the functions of ops that registered since, too
            raise AttributeError(f"module 'tenon.functions' has no attribute {name!r}")
        _FUNCTIONS[name] = derive(name)
        rerouting.register("torch", {name: _FUNCTIONS[name]})
    return _FUNCTIONS[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_FUNCTIONS})
