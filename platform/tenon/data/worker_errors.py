"""Exceptions sent between processes: as text, re-raised with the original traceback in the message."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn, TypeAlias

#: ``sys.exc_info()`` while an exception is handled.
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]

__all__ = ["ExceptionWrapper", "KeyErrorMessage"]


class KeyErrorMessage(str):
    """A message whose line breaks a KeyError displays as such: KeyError shows the repr of its argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """The current exception in a picklable form, to be re-raised in another process."""

    def __init__(self, exc_info: ExcInfo | None = None, where: str = "in background") -> None:
        kind, value, trace = exc_info or sys.exc_info()
        self.exc_type: Any = kind  # called with one argument, though exceptions may have other parameters
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raise the same type with the original traceback in its message; RuntimeError if that fails."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            again = self.exc_type(message)
        except Exception:  # its constructor has other parameters
            raise RuntimeError(message) from None
        raise again
