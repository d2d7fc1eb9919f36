"""PyTorch's top-level functions by name. Most call a tensor's method on the first argument (``derived.py``).

``tenon.__getattr__`` looks up names here that no module of the package defines.
"""

from __future__ import annotations

from typing import Any

from tenon.compat import rerouting
from tenon.functions import (
    checks,
    choosing,
    contraction,
    control,
    copies,
    counting,
    factorizations,
    foreach,
    joining,
    limits,
    making,
    older_factorizations,
    older_making,
    questions,
    reading,
    settings,
    slopes,
    spectra,
    typed,
)
from tenon.functions.derived import derive, derive_all
from tenon.functions.einsum import einsum
from tenon.kernels.promotion import result_type
from tenon.tensors.creation import create, draws, factories, ranges
from tenon.tensors.methods.function_forms import FUNCTION_FORMS

_FAMILIES = (
    checks, choosing, contraction, control, copies, counting, factorizations, foreach, joining, limits,
    making, older_factorizations, older_making, questions, reading, settings, slopes, spectra, typed,
)  # fmt: skip
_FUNCTIONS: dict[str, Any] = derive_all() | {name: getattr(m, name) for m in _FAMILIES for name in m.__all__}
_FUNCTIONS["einsum"] = einsum

__all__ = sorted(_FUNCTIONS)

#: Modules and names whose functions are not subject to ``__torch_function__``.
_OWN = (checks, control, settings, typed)
_NOT_OVERRIDABLE = {"broadcast_shapes", "is_storage", "is_tensor", "typename"}.union(
    *(m.__all__ for m in _OWN)
)
_MAKING = (
    "arange", "as_tensor", "empty", "empty_permuted", "empty_strided", "eye", "from_numpy", "full",
    "linspace", "logspace", "normal", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor",
    "tensor", "tril_indices", "triu_indices", "zeros",
)  # fmt: skip
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_CREATION = {
    n: getattr(m, n) for m in (create, factories, ranges, draws) for n in (*_MAKING, *_LIKE) if hasattr(m, n)
}
rerouting.register(
    "torch",
    {n: f for n, f in _FUNCTIONS.items() if n not in _NOT_OVERRIDABLE}
    | _CREATION
    | {"result_type": result_type},
    bare=[
        *_MAKING,
        *(n for n in making.__all__ if n.endswith("window")),
        "asarray",
        "from_file",
        "frombuffer",
        "range",
    ],
)


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        if name not in FUNCTION_FORMS:  # where an op that registered since has noted its functions
            raise AttributeError(f"module 'tenon.functions' has no attribute {name!r}")
        _FUNCTIONS[name] = derive(name)
        rerouting.register("torch", {name: _FUNCTIONS[name]})
    return _FUNCTIONS[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_FUNCTIONS})
