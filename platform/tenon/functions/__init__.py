"""torch's functions by name. Most are a tensor's method called on the first argument (``derived.py``).

``tenon.__getattr__`` looks here for names that have no home of their own.
"""

from __future__ import annotations

from typing import Any

from tenon.functions import (
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
    settings,
    slopes,
    spectra,
    typed,
)
from tenon.functions.derived import derive_all
from tenon.functions.einsum import einsum

_FAMILIES = (
    choosing, contraction, control, copies, counting, factorizations, foreach, joining, limits, making,
    older_factorizations, older_making, questions, settings, slopes, spectra, typed,
)  # fmt: skip
_FUNCTIONS: dict[str, Any] = derive_all() | {name: getattr(m, name) for m in _FAMILIES for name in m.__all__}
_FUNCTIONS["einsum"] = einsum

__all__ = sorted(_FUNCTIONS)


def __getattr__(name: str) -> Any:
    try:
        return _FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"module 'tenon.functions' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_FUNCTIONS})
