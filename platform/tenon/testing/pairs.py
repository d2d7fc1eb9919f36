"""Pairs of values to be compared: the classes that ``assert_close`` uses, and their base.

The constructor of a class raises ``UnsupportedInputs`` for values that it does not support, ``compare``
raises ``ErrorMeta`` if they differ. Of a list of classes, the first that supports two values compares them.
Names and options are those of ``torch.testing._comparison``, as test suites derive classes of their own.
"""

from __future__ import annotations

import abc
import cmath
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np

from tenon import dtypes
from tenon.tensors.creation.create import as_tensor
from tenon.tensors.tensor import Tensor
from tenon.testing import mismatches

#: The keys and indices that lead to a value in nested containers.
Path = tuple[object, ...]
Message = str | Callable[[str], str] | None


class ErrorMeta(Exception):
    """A difference at the position ``id``, to be raised as an exception of class ``type``."""

    def __init__(self, type: type[Exception], msg: str, *, id: Path = ()) -> None:
        super().__init__(msg)
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: Message = None) -> Exception:
        """Return the exception; ``msg`` replaces the message, or is called with it."""
        if isinstance(msg, str):
            return self.type(msg)
        text = self.msg
        if self.id:
            text += f"\n\nThe failure occurred for item {''.join(str([p]) for p in self.id)}"
        return self.type(text if msg is None else msg(text))


class UnsupportedInputs(Exception):
    """The class of pairs does not support these values."""


def get_tolerances(
    *inputs: Tensor | dtypes.dtype, rtol: float | None, atol: float | None, id: Path = ()
) -> tuple[float, float]:
    """Return the tolerances, by default the largest of the dtypes of ``inputs``.

    ErrorMeta if only one of them is given.
    """
    if rtol is not None and atol is not None:
        return rtol, atol
    if rtol is None and atol is None:
        return mismatches.default_tolerances(*inputs)
    missing = "rtol" if rtol is None else "atol"
    text = f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
    raise ErrorMeta(ValueError, text, id=id)


#: An option of a subclass of Pair; its constructor states the type.
Option: TypeAlias = Any


class Pair(abc.ABC):
    """Two values at the position ``id``. Subclasses pass on the options that they do not read, which are
    ignored."""

    #: Values of the kind that the subclass takes.
    actual: Any
    #: Of the same kind.
    expected: Any

    def __init__(
        self, actual: object, expected: object, *, id: Path = (), **unknown_parameters: Option
    ) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: object, cls: type | tuple[type, ...]) -> None:
        if not all(isinstance(each, cls) for each in inputs):
            raise UnsupportedInputs

    def _fail(self, type: type[Exception], msg: str, *, id: Path = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=id or getattr(self, "id", ()))

    @abc.abstractmethod
    def compare(self) -> None:
        """Raise ``ErrorMeta`` if the values differ."""

    def extra_repr(self) -> Sequence[str | tuple[str, object]]:
        """Return further names of attributes, or names with values, for ``repr``."""
        return []

    def __repr__(self) -> str:
        attributes = [("id", self.id), ("actual", self.actual), ("expected", self.expected)]
        attributes += [(x, getattr(self, x)) if isinstance(x, str) else x for x in self.extra_repr()]
        body = "".join(f"    {name}={value!s},\n" for name, value in attributes)
        return f"{type(self).__name__}(\n{body})"


class ObjectPair(Pair):
    """Any two values, compared by ``==``."""

    def compare(self) -> None:
        """Compare by ``==``."""
        try:
            equal = bool(self.actual == self.expected)
        except Exception as error:
            text = f"{self.actual} == {self.expected} failed with:\n{error}."
            raise ErrorMeta(ValueError, text, id=self.id) from error
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """None and any value."""

    def __init__(self, actual: object, expected: object, **other_parameters: Option) -> None:
        if actual is not None and expected is not None:
            raise UnsupportedInputs
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        """Raise unless both are None."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Booleans of Python or NumPy."""

    _supported_types: ClassVar[tuple[type, ...]] = (bool, np.bool_)

    def __init__(
        self, actual: object, expected: object, *, id: Path = (), **other_parameters: Option
    ) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)

    def _process_inputs(self, actual: object, expected: object, *, id: Path) -> Sequence[bool]:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return [self._to_bool(each, id=id) for each in (actual, expected)]

    def _to_bool(self, bool_like: object, *, id: Path) -> bool:
        if not isinstance(bool_like, (bool, np.bool_)):
            raise ErrorMeta(TypeError, f"Unknown boolean type {type(bool_like)}.", id=id)
        return bool(bool_like)

    def compare(self) -> None:
        """Raise unless both are the same."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class NumberPair(Pair):
    """Numbers of Python or NumPy."""

    _TYPE_TO_DTYPE: ClassVar[dict[type, dtypes.dtype]] = {
        int: dtypes.int64,
        float: dtypes.float64,
        complex: dtypes.complex128,
    }
    _supported_types: ClassVar[tuple[type, ...]] = (int, float, complex, np.number)

    def __init__(
        self,
        actual: object,
        expected: object,
        *,
        id: Path = (),
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_dtype: bool = False,
        **other_parameters: Option,
    ) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)
        kinds = [self._TYPE_TO_DTYPE[type(each)] for each in (actual, expected)]
        self.rtol, self.atol = get_tolerances(*kinds, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    def _process_inputs(self, actual: object, expected: object, *, id: Path) -> Sequence[complex]:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return [self._to_number(each, id=id) for each in (actual, expected)]

    # A number of a type in ``_TYPE_TO_DTYPE``, which subclasses may extend.
    def _to_number(self, number_like: object, *, id: Path) -> Any:
        if isinstance(number_like, np.number):
            return number_like.item()
        if not isinstance(number_like, tuple(self._TYPE_TO_DTYPE)):
            raise ErrorMeta(TypeError, f"Unknown number type {type(number_like)}.", id=id)
        return number_like

    def compare(self) -> None:
        """Compare the types, if ``check_dtype``, then the values."""
        a, e = self.actual, self.expected
        if self.check_dtype and type(a) is not type(e):
            self._fail(AssertionError, f"The (d)types do not match: {type(a)} != {type(e)}.")
        gap = abs(a - e)
        if a == e or (cmath.isfinite(gap) and gap <= self.atol + self.rtol * abs(e)):
            return
        if not (self.equal_nan and cmath.isnan(a) and cmath.isnan(e)):
            self._fail(AssertionError, mismatches.scalar_text(a, e, self.rtol, self.atol))

    def extra_repr(self) -> Sequence[str]:
        """Return the names of the options."""
        return ("rtol", "atol", "equal_nan", "check_dtype")


class TensorLikePair(Pair):
    """Tensors, and values that can be converted to tensors."""

    def __init__(
        self,
        actual: object,
        expected: object,
        *,
        id: Path = (),
        allow_subclasses: bool = True,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_device: bool = True,
        check_dtype: bool = True,
        check_layout: bool = True,
        check_stride: bool = False,
        **other_parameters: Option,
    ) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(actual, expected, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(
        self, actual: object, expected: object, *, id: Path, allow_subclasses: bool
    ) -> Sequence[Tensor]:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or not (allow_subclasses or type(actual) is type(expected)):
            raise UnsupportedInputs
        tensors = [self._to_tensor(each) for each in (actual, expected)]
        for each in tensors:
            self._check_supported(each, id=id)
        return tensors

    def _to_tensor(self, tensor_like: object) -> Tensor:
        if isinstance(tensor_like, Tensor):
            return tensor_like
        try:
            result: Tensor = as_tensor(tensor_like)
            return result
        except Exception:
            raise UnsupportedInputs from None

    def _check_supported(self, tensor: Tensor, *, id: Path) -> None:
        """Do nothing: every layout is supported."""

    def compare(self) -> None:
        """Compare attributes, then values."""
        actual, expected = self.actual, self.expected
        self._compare_attributes(actual, expected)
        if "meta" not in (actual.device.type, expected.device.type):
            self._compare_values(*self._equalize_attributes(actual, expected))

    def _compare_attributes(self, actual: Tensor, expected: Tensor) -> None:
        checks: list[tuple[str, bool, object, object]] = [("shape", True, actual.shape, expected.shape)]
        checks.append(("layout", self.check_layout, actual.layout, expected.layout))
        if self.check_stride:
            checks.append(("stride()", True, actual.stride(), expected.stride()))
        checks.append(("device", self.check_device, actual.device, expected.device))
        checks.append(("dtype", self.check_dtype, actual.dtype, expected.dtype))
        for name, enabled, a, e in checks:
            if enabled and a != e:
                text = f"The values for attribute '{name}' do not match: {a} != {e}."
                self._fail(AssertionError, text)

    def _equalize_attributes(self, actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        common = actual.dtype
        if actual.dtype != expected.dtype:
            common = dtypes.promote_types(_signed(actual.dtype), _signed(expected.dtype))
        a, e = (_whole(t).detach().cpu().to(common) for t in (actual, expected))
        return a, e

    def _compare_values(self, actual: Tensor, expected: Tensor) -> None:
        self._compare_regular_values_close(
            actual, expected, rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan
        )

    def _compare_regular_values_close(
        self,
        actual: Tensor,
        expected: Tensor,
        *,
        rtol: float,
        atol: float,
        equal_nan: bool,
        identifier: mismatches.Identifier = None,
    ) -> None:
        a, e = (np.asarray(t.numpy()) for t in (actual, expected))
        with np.errstate(all="ignore"):
            matches = mismatches.close(a, e, rtol, atol, equal_nan)
            if matches.all():
                return
            if a.ndim:
                text = mismatches.tensor_text(a, e, matches, rtol, atol, identifier)
            else:
                numbers = mismatches.number(a), mismatches.number(e)
                text = mismatches.scalar_text(*numbers, rtol, atol, identifier)
        self._fail(AssertionError, text)

    def extra_repr(self) -> Sequence[str]:
        """Return the names of the options."""
        checks = ("check_device", "check_dtype", "check_layout", "check_stride")
        return ("rtol", "atol", "equal_nan", *checks)


def _whole(value: Tensor) -> Tensor:
    """``value``; of a DTensor the whole, which all ranks gather."""
    gather: Callable[[], Tensor] | None = getattr(value, "full_tensor", None)
    return value if gather is None else gather()


def _signed(kind: dtypes.dtype) -> dtypes.dtype:
    return dtypes.int64 if kind in (dtypes.uint16, dtypes.uint32, dtypes.uint64) else kind
