"""``Frames``: the user's functions that run while a call is recorded, and the objects passed to them.

The values that they can read besides tensors are the variables, attributes and items that their code names;
``guarded_values.py`` checks those before every run.
"""

from __future__ import annotations

import gc
import sys
import weakref
from types import CodeType, FrameType, FunctionType
from typing import Any

from tenon.engine.value import Value

#: Packages whose variables are not guarded.
_LIBRARIES = frozenset(sys.stdlib_module_names - {"__main__"}) | {"numpy", "numba", "llvmlite", "tenon"}


def is_library(module: str | None) -> bool:
    """Whether a module of that name is of tenon, a plugin, the standard library or a library below tenon."""
    package = (module or "builtins").partition(".")[0]
    return package in _LIBRARIES or package.startswith("tenon_")


class Frames:
    """A context that records the functions that are called in this thread."""

    def __init__(self) -> None:
        #: The user's code that ran, with its global variables.
        self.codes: dict[CodeType, dict[str, object]] = {}
        #: The names and strings in all code that ran, tenon's included.
        self.mentioned: set[str] = set()
        #: By id, the objects that were passed to the user's functions.
        self.passed: dict[int, weakref.ref[object]] = {}
        self._known: set[CodeType] = set()
        #: The profile function before this one: a callable, or a profiler object.
        self._before: Any = None

    def __enter__(self) -> Frames:
        # Callbacks of the garbage collector run at arbitrary times and are left out.
        self._known.update(each.__code__ for each in gc.callbacks if hasattr(each, "__code__"))
        self._before = sys.getprofile()
        if hasattr(self._before, "disable"):  # cProfile, whose function cannot be called from here
            self._before.disable()
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        if hasattr(self._before, "enable"):
            self._before.enable()
        elif self._before is not None:
            sys.setprofile(self._before)

    def _on_event(self, frame: FrameType, event: str, arg: object) -> None:
        if callable(self._before):
            self._before(frame, event, arg)
        if event != "call":
            return
        code = frame.f_code
        if code not in self._known:
            self._known.add(code)
            self.mentioned.update(code.co_names)
            if not is_library(frame.f_globals.get("__name__")) and code.co_name != "__del__":
                self.codes[code] = frame.f_globals
                self.mentioned.update(c for c in code.co_consts if isinstance(c, str))
        if code in self.codes:
            values = frame.f_locals
            for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
                self._add_object(values.get(name))

    def _add_object(self, value: object) -> None:
        if isinstance(value, Value) or id(value) in self.passed or not type(value).__flags__ & _HEAP:
            return
        if hasattr(value, "__dict__"):
            try:
                self.passed[id(value)] = weakref.ref(value)
            except TypeError:  # no weak references to such an object
                return

    def functions(self, first: object) -> list[FunctionType]:
        """Return ``first``, if it is a function, and the user's functions with closures that ran.

        Functions that were created during the call are left out.
        """
        inner = {c for code in self.codes for c in code.co_consts if isinstance(c, CodeType)}
        candidates = [
            code for code in self.codes if set(code.co_freevars) - {"__class__"} and code not in inner
        ]
        functions = [first] if isinstance(first, FunctionType) else []
        candidates = [code for code in candidates if not functions or code is not functions[0].__code__]
        if candidates:
            codes = set(candidates)
            functions += [
                each
                for each in gc.get_referrers(*candidates)
                if isinstance(each, FunctionType) and each.__code__ in codes
            ]
        return functions


#: Py_TPFLAGS_HEAPTYPE: classes written in Python.
_HEAP = 1 << 9
