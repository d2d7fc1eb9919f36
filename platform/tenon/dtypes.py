"""Tensor dtypes: PyTorch's names over NumPy's, and PyTorch's promotion rules.

A ``dtype`` is a singleton that prints as PyTorch prints it (``torch.float32``) and has the
NumPy dtype that stores it. Promotion follows PyTorch, not NumPy: categories are ordered
bool < integer < floating < complex, and the wider type inside the higher category wins.

Next: ``kernels/promotion.py`` applies these rules to tensors, 0-d tensors and Python numbers.
"""

from __future__ import annotations

import builtins
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tenon.errors import DTypeError, UnsupportedDTypeError

BOOL, INTEGER, FLOATING, COMPLEX = range(4)


class dtype:
    """Element type of a tensor; compare with ``is`` or ``==``.

    ``numpy`` is the NumPy dtype, ``itemsize`` its width in bytes, ``category`` one of
    ``BOOL < INTEGER < FLOATING < COMPLEX``.
    """

    __slots__ = (
        "_hash",
        "category",
        "is_complex",
        "is_floating_point",
        "is_signed",
        "itemsize",
        "name",
        "numpy",
    )

    def __init__(self, name: str, numpy_type: type, category: int, signed: builtins.bool = True) -> None:
        self.name = name
        self.numpy: np.dtype = np.dtype(numpy_type)
        self.category = category
        self.itemsize = int(self.numpy.itemsize)
        self.is_floating_point = category == FLOATING
        self.is_complex = category == COMPLEX
        self.is_signed = signed

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: object) -> dtype:
        return self

    def to_real(self) -> dtype:
        """The real dtype of a complex one's parts; itself otherwise."""
        return {complex64: float32, complex128: float64, NAMED["complex32"]: float16}.get(self, self)

    def to_complex(self) -> dtype:
        """The complex dtype whose parts hold this dtype."""
        return complex128 if self in (float64, complex128) else complex64


bool = dtype("bool", np.bool_, BOOL, signed=False)
uint8 = dtype("uint8", np.uint8, INTEGER, signed=False)
uint16 = dtype("uint16", np.uint16, INTEGER, signed=False)
uint32 = dtype("uint32", np.uint32, INTEGER, signed=False)
uint64 = dtype("uint64", np.uint64, INTEGER, signed=False)
int8 = dtype("int8", np.int8, INTEGER)
int16 = dtype("int16", np.int16, INTEGER)
int32 = dtype("int32", np.int32, INTEGER)
int64 = dtype("int64", np.int64, INTEGER)
float16 = dtype("float16", np.float16, FLOATING)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, FLOATING)
float32 = dtype("float32", np.float32, FLOATING)
float64 = dtype("float64", np.float64, FLOATING)
complex64 = dtype("complex64", np.complex64, COMPLEX)
complex128 = dtype("complex128", np.complex128, COMPLEX)


class NamedDType(dtype):
    """A dtype that can be named, compared and used as a key, but that no tensor here can have."""

    __slots__ = ("_signed",)

    def __init__(self, name: str, itemsize: int, category: int, signed: builtins.bool | None) -> None:
        self.name, self.category, self.itemsize = name, category, itemsize
        self.is_floating_point, self.is_complex = category == FLOATING, category == COMPLEX
        self._signed = signed

    @property
    def is_signed(self) -> builtins.bool:  # type: ignore[override]  # read-only here
        """Whether it has negative values; UnsupportedDTypeError for quantized ones, as in PyTorch."""
        if self._signed is None:
            raise UnsupportedDTypeError(f"isSignedType not supported for quantized types, as {self!r} is")
        return self._signed

    @property
    def numpy(self) -> Any:  # type: ignore[override]
        """Raise UnsupportedDTypeError: no array has this dtype."""
        raise UnsupportedDTypeError(
            f"tensors of {self!r} do not exist here; it is a name only. Use one of "
            f"{', '.join(d.name for d in ALL)}."
        )


#: Name, bytes, category and sign (None where PyTorch defines none) of the dtypes that no tensor can have.
_NAMED: tuple[tuple[str, int, int, Any], ...] = (
    ("complex32", 4, COMPLEX, True),
    *((f"float8_{kind}", 1, FLOATING, True) for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")),
    ("float8_e8m0fnu", 1, FLOATING, False),
    ("float4_e2m1fn_x2", 1, FLOATING, True),
    ("qint32", 4, INTEGER, None),
    *((name, 1, INTEGER, None) for name in ("qint8", "quint8", "quint4x2", "quint2x4")),
    *((f"int{bits}", 1, INTEGER, True) for bits in range(1, 8)),
    *((f"uint{bits}", 1, INTEGER, False) for bits in range(1, 8)),
)
NAMED: dict[str, dtype] = {row[0]: NamedDType(*row) for row in _NAMED}
globals().update(NAMED)

ALL: tuple[dtype, ...] = (
    bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip

ALIASES: dict[str, dtype] = {
    "half": float16,
    "float": float32,
    "double": float64,
    "short": int16,
    "int": int32,
    "long": int64,
    "cfloat": complex64,
    "cdouble": complex128,
}

BY_NAME: dict[str, dtype] = {d.name: d for d in ALL} | ALIASES

#: NumPy dtype -> dtype. Read on the hot path through ``Tensor.dtype``.
FROM_NUMPY: dict[np.dtype[Any], dtype] = {d.numpy: d for d in ALL}

PYTHON_TYPES: dict[type, dtype] = {}


class _Default:
    float: dtype = float32


def get_default_dtype() -> dtype:
    """The floating dtype that Python floats become; ``torch.float32`` at start."""
    return _Default.float


def set_default_dtype(d: dtype, /) -> None:
    """Set the dtype that Python floats become; only floating dtypes are accepted."""
    if not isinstance(d, dtype) or not d.is_floating_point or isinstance(d, NamedDType):
        raise DTypeError(
            f"set_default_dtype: only floating-point types are supported, not {d!r}. Pass e.g. torch.float64."
        )
    _Default.float = d


def from_numpy_dtype(numpy_type: Any) -> dtype:  # anything that ``np.dtype`` accepts
    """The dtype stored as ``numpy_type``; ``DTypeError`` if tenon has none."""
    try:
        return FROM_NUMPY[np.dtype(numpy_type)]
    except (KeyError, TypeError):
        raise DTypeError(
            f"can't convert np.ndarray of type {numpy_type}. The only supported types are: "
            + ", ".join(d.name for d in ALL)
            + "."
        ) from None


#: A dtype, a dtype or scalar type of NumPy, or a Python type of numbers such as ``float``.
DTypeLike: TypeAlias = dtype | np.dtype | type


def as_dtype(value: DTypeLike) -> dtype:
    """``value`` as a dtype: a dtype, a Python type (bool, int, float, complex), or a NumPy dtype."""
    if isinstance(value, dtype):
        return value
    python = {builtin_bool: bool, int: int64, float: float64, complex: complex128}
    if isinstance(value, type) and value in python:
        return python[value]
    return from_numpy_dtype(value)


def of_number(value: object) -> dtype:
    """The dtype of a tensor created from a Python number: the default dtype for a float."""
    if isinstance(value, float):
        return _Default.float
    if isinstance(value, complex):
        return _Default.float.to_complex()
    if isinstance(value, int) and not isinstance(value, builtin_bool):
        return int64
    return as_dtype(type(value))


builtin_bool = builtins.bool

_FLOAT_ORDER: dict[dtype, int] = {float16: 0, bfloat16: 0, float32: 1, float64: 2}


def _promote(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    for each in (a, b):
        if each.name in NAMED:
            raise DTypeError(
                f"promote_types: {a} and {b} have no common dtype: tensors of {each} do not exist here."
            )
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        if high.is_complex and low is float64:
            return complex128
        return high
    if a.is_floating_point:
        if _FLOAT_ORDER[a] == _FLOAT_ORDER[b]:  # float16 with bfloat16
            return float32
        return a if _FLOAT_ORDER[a] > _FLOAT_ORDER[b] else b
    if a.is_complex:
        return complex128
    if a.is_signed == b.is_signed:
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if unsigned.itemsize < signed.itemsize:
        return signed
    wider = {1: int16, 2: int32, 4: int64}.get(unsigned.itemsize)
    if wider is None:
        raise DTypeError(
            f"promote_types: {a} and {b} have no common dtype. Cast one of them with .to(...) first."
        )
    return wider


_PROMOTED: dict[tuple[dtype, dtype], dtype] = {}


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that holds both, by PyTorch's rules.

    >>> promote_types(int64, float16)
    torch.float16
    """
    key = (type1, type2)
    result = _PROMOTED.get(key)
    if result is None:
        result = _PROMOTED[key] = _promote(type1, type2)
    return result


def can_cast(from_: dtype, to: dtype) -> builtin_bool:
    """Whether PyTorch lets a result of ``from_`` be written into a tensor of ``to``."""
    category = to.category
    if from_.is_complex and category < COMPLEX:
        return False
    if from_.is_floating_point and category < FLOATING:
        return False
    return not (from_ is not bool and to is bool)


_SCALAR_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def scalar_name(d: dtype) -> str:
    """``d`` as PyTorch's error messages call it.

    >>> import tenon
    >>> scalar_name(tenon.int64)
    'Long'
    """
    return _SCALAR_NAMES.get(d.name, d.name)
