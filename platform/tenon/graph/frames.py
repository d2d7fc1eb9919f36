"""``Frames``: which of the user's functions run while a call is recorded, and on which objects.

What they could read beside tensors is in the variables, attributes and items that they mention; see
``guarded_values.py``, which looks at those again before every run.
"""

from __future__ import annotations

import gc
import sys
import weakref
from types import CodeType, FrameType, FunctionType
from typing import Any

from tenon.engine.value import Value

#: Packages whose own variables no program depends on.
_OTHERS = frozenset(sys.stdlib_module_names - {"__main__"}) | {"numpy", "numba", "llvmlite", "tenon"}


def ours(module: str | None) -> bool:
    """Whether a module of that name is tenon's, a plugin's, or of the libraries below."""
    package = (module or "builtins").partition(".")[0]
    return package in _OTHERS or package.startswith("tenon_")


class Frames:
    """A context that notes the functions that begin in this thread."""

    def __init__(self) -> None:
        #: Code of the user, and its global variables.
        self.codes: dict[CodeType, dict[str, Any]] = {}
        #: Names and strings in all code that ran, tenon's included.
        self.mentioned: set[str] = set()
        #: Objects that were given to the user's functions.
        self.given: dict[int, weakref.ref[Any]] = {}
        self._known: set[CodeType] = set()
        self._before: Any = None

    def __enter__(self) -> Frames:
        # What runs in between, at no moment of the user's choosing, is not looked at.
        self._known.update(each.__code__ for each in gc.callbacks if hasattr(each, "__code__"))
        self._before = sys.getprofile()
        if hasattr(self._before, "disable"):  # cProfile, which cannot be told of calls
            self._before.disable()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        if hasattr(self._before, "enable"):
            self._before.enable()
        elif self._before is not None:
            sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, arg: Any) -> None:
        if callable(self._before):
            self._before(frame, event, arg)
        if event != "call":
            return
        code = frame.f_code
        if code not in self._known:
            self._known.add(code)
            self.mentioned.update(code.co_names)
            if not ours(frame.f_globals.get("__name__")) and code.co_name != "__del__":
                self.codes[code] = frame.f_globals
                self.mentioned.update(c for c in code.co_consts if isinstance(c, str))
        if code in self.codes:
            values = frame.f_locals
            for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
                self._take(values.get(name))

    def _take(self, value: Any) -> None:
        if isinstance(value, Value) or id(value) in self.given or not type(value).__flags__ & _HEAP:
            return
        if hasattr(value, "__dict__"):
            try:
                self.given[id(value)] = weakref.ref(value)
            except TypeError:  # such an object says nobody when it goes
                return

    def functions(self, first: Any) -> list[FunctionType]:
        """Those functions of the user that ran and have enclosed variables, ``first`` among them. Functions
        that were made during the call are left out."""
        inner = {c for code in self.codes for c in code.co_consts if isinstance(c, CodeType)}
        wanted = [code for code in self.codes if set(code.co_freevars) - {"__class__"} and code not in inner]
        found = [first] if isinstance(first, FunctionType) else []
        wanted = [code for code in wanted if not found or code is not first.__code__]
        if wanted:
            codes = set(wanted)
            found += [
                each
                for each in gc.get_referrers(*wanted)
                if isinstance(each, FunctionType) and each.__code__ in codes
            ]
        return found


#: Py_TPFLAGS_HEAPTYPE: classes written in Python.
_HEAP = 1 << 9
