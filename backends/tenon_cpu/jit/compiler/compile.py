"""Turn Python functions into machine code with numba, once per machine.

``compiled`` takes generated source, ``kernel`` decorates a hand-written function, ``inlined`` one that only
kernels call. numba is imported where something is to be compiled: machine code that is on disk is loaded
without it (``native.py``). Without numba, or with ``TENON_NUMBA=0``, ``available()`` is false and the NumPy
kernels serve.

Signatures are explicit, so that nothing is compiled by accident: a call with other types is a TypeError.
Code runs without the interpreter lock, divides as NumPy does, checks no bounds, and keeps NaN and infinity
as IEEE has them: of ``fastmath`` only ``contract`` (fused multiply-add) is on, and a kernel may ask for
``reassoc`` or ``nsz``. ``store.py`` keeps the machine code.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon.extend import Config, environment, errors
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.native import Native, Signature, described, object_code
from tenon_cpu.jit.compiler.store import Store
from tenon_cpu.jit.compiler.undisturbed import undisturbed

Function = Callable[..., Any]

_OFF = frozenset({"0", "false", "no", "off"})
#: nnan and ninf would let LLVM assume that there is no NaN and no infinity; arcp and afn lose digits.
_SAFE_FASTMATH = frozenset({"contract", "reassoc", "nsz"})
_OLDEST = (0, 60)
_INSTALL = "pip install 'tenon-platform[fast]'"


@dataclass
class Counts:
    """What this process compiled and what it found on disk."""

    loaded: int = 0
    compiled: int = 0
    seconds: float = 0.0
    names: list[str] = field(default_factory=list)


counts = Counts()
_lock = threading.RLock()


class _Numba:
    """numba, imported when something is to be compiled; ``reason`` says why it is not used."""

    def __init__(self) -> None:
        self.module: Any = None
        self._reason: str | None = None
        self._asked = False
        self._store: Store | None = None

    @property
    def reason(self) -> str | None:
        """Why there is none; None where kernels can be had."""
        if not self._asked:
            with _lock:
                if not self._asked:
                    self._reason = self._look()
                    self._asked = True
        return self._reason

    def load(self) -> Any:
        """The module."""
        with _lock:
            found = self.reason or (self._import() if self.module is None else None)
            if found is not None:
                raise errors.BackendError(f"kernels cannot be compiled: {found}.")
            return self.module

    def _look(self) -> str | None:
        if (Config.from_environment().setting("numba", "1") or "1").strip().lower() in _OFF:
            return "turned off by TENON_NUMBA"
        version = _version("numba")
        if version is None or not llvm.available():
            return f"numba is not installed; {_INSTALL}"
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
            return f"numba {version} is older than {'.'.join(map(str, _OLDEST))}"
        if environment("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
            return "turned off by NUMBA_DISABLE_JIT"
        # Kernels on disk were compiled by this very numba beside this NumPy: it can be imported.
        return None if self.store.entries()[0] else self._import()

    @undisturbed
    def _import(self) -> str | None:
        # Of a package that a signal left half imported, extensions would be set up twice.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                numba = importlib.import_module("numba")
        except ImportError as error:
            if getattr(error, "name", None) == "numba":
                return f"numba is not installed; {_INSTALL}"
            return f"numba cannot be imported: {error}"
        if numba.config.THREADING_LAYER == "default":
            numba.config.THREADING_LAYER = "omp"  # one libgomp, and one set of threads, with oneDNN
        self.module = numba
        return None

    @property
    def store(self) -> Store:
        """Where machine code for this processor, Python and numba is kept."""
        if self._store is None:
            self._store = Store(Config.from_environment().cache_folder() / "kernels" / _platform())
        return self._store


_numba = _Numba()


def available() -> bool:
    """Whether there are compiled kernels here; imports numba only where none is on disk yet."""
    return _numba.reason is None


def reason() -> str | None:
    """Why ``available()`` is false; None where it is true."""
    return _numba.reason


def store() -> Store:
    """The machine code on disk; only where ``available()``."""
    return _numba.store


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _platform() -> str:
    """Names everything that machine code depends on besides its source."""
    made = llvm.compiler()
    version = _version("numba")
    parts = (
        sys.implementation.cache_tag,
        version,
        _version("llvmlite"),
        np.__version__,
        made.target.triple,
        made.cpu,
        made.features,
        environment("NUMBA_CPU_NAME"),
        environment("NUMBA_CPU_FEATURES"),
    )
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
    return f"numba-{version}-{sys.implementation.cache_tag}-{made.cpu}-{digest}"


class Inlined:
    """A function for other kernels to call; see ``inlined``."""

    def __init__(self, function: Function, flags: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.flags = _flags(flags)
        self._ready: Any = None

    def __call__(self, *args: Any) -> Any:
        """As plain Python, for tests of the formula."""
        return self.function(*args)

    def dispatcher(self) -> Any:
        """numba's object; compiled into whatever calls it."""
        if self._ready is None:
            self._ready = _numba.load().njit(**self.flags)(_with_dispatchers(self.function))
        return self._ready


class Fused(Inlined):
    """``fused(a, b, c)`` in a kernel is the processor's fused multiply-add ``a * b + c``, rounded once."""

    def dispatcher(self) -> Any:
        """An intrinsic of numba's."""
        if self._ready is None:
            from numba.extending import intrinsic

            @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
            def fused(typing: Any, a: Any, b: Any, c: Any) -> Any:
                return a(a, a, a), lambda context, builder, signature, values: builder.fma(*values)

            self._ready = fused
        return self._ready


def _fused(a: Any, b: Any, c: Any) -> Any:
    """Of float32, as plain Python: the product is exact in float64."""
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


class Kernel:
    """A hand-written function, compiled or loaded at its first call; see ``kernel``."""

    def __init__(self, function: Function, signature: str, flags: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.signature = Signature(signature)
        self.flags = _flags(flags)
        self._native: Native | None = None

    def __call__(self, *args: Any) -> Any:
        """Run it; where time counts call what ``ready()`` returns."""
        return self.native().call(*args)

    def ready(self) -> Function:
        """The compiled function."""
        return self.native().call

    def native(self) -> Native:
        """The machine code."""
        return self._native or self._made()

    @undisturbed
    def _made(self) -> Native:
        with _lock:
            found = self._native
            if found is None:
                text = _source(self.function)
                found = self._native = _build(self.function, self.signature, self.flags, text)
        return found


def kernel(signature: str, **flags: Any) -> Callable[[Function], Kernel]:
    """Decorate a function to compile it for ``signature``, such as ``"void(float32[::1], int64)"``."""

    def wrap(function: Function) -> Kernel:
        return Kernel(function, signature, flags)

    return wrap


def inlined(function: Function | None = None, **flags: Any) -> Any:
    """Decorate a function that kernels call; it takes its callers' types and becomes part of them."""
    if function is not None:
        return Inlined(function, {})
    return lambda f: Inlined(f, flags)


_generated: dict[tuple[Any, ...], Function] = {}


def compiled(
    source: str, name: str, signature: str, namespace: Mapping[str, Any] | None = None, **flags: Any
) -> Function:
    """The function ``name`` that ``source`` defines, as machine code for ``signature``.

    ``namespace`` holds what the source refers to: modules, numbers, ``inlined`` functions. Asking again for
    the same gives the same function.
    """
    names = dict(namespace or {})
    checked = _flags(flags)
    text = source + _described(names)
    key = (text, name, signature, _shown(checked))
    return _generated.get(key) or _generate(key, source, names, checked)


@undisturbed
def _generate(
    key: tuple[str, str, str, str], source: str, names: Mapping[str, Any], checked: Mapping[str, Any]
) -> Function:
    text, name, signature, _ = key
    with _lock:
        found = _generated.get(key)
        if found is None:
            filename = f"<tenon {name} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
            scope: dict[str, Any] = {"__name__": __name__, **names}  # numba asks for a module that exists
            exec(builtins.compile(source, filename, "exec"), scope)
            made = _build(scope[name], Signature(signature), checked, text)
            found = _generated[key] = made.call
    return found


def _flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    fast = frozenset(flags.get("fastmath", ("contract",)))
    if not fast <= _SAFE_FASTMATH:
        raise errors.ArgumentError(
            f"fastmath {sorted(fast - _SAFE_FASTMATH)} changes what NaN, infinity or digits come out; only"
            f" {sorted(_SAFE_FASTMATH)} may be asked for."
        )
    return {"nogil": True, "error_model": "numpy", "boundscheck": False, **flags, "fastmath": set(fast)}


def _shown(flags: Mapping[str, Any]) -> str:
    """``flags`` as text that is the same in every process: that of a set is in another order in each."""
    return repr(sorted((k, sorted(v) if isinstance(v, set) else v) for k, v in flags.items()))


def _build(function: Function, signature: Signature, flags: Mapping[str, Any], text: str) -> Native:
    """The machine code of ``function``: from disk, or compiled and kept."""
    name = function.__name__
    if _numba.reason is not None:
        raise errors.BackendError(f"{name} cannot be compiled: {_numba.reason}.")
    whole = f"{text}\n{_shown(flags)}\n{described(name, signature)}"
    key = f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:24]}"
    started = time.perf_counter()
    try:
        found = _loaded(name, signature, key)
        if found is None:
            with _numba.store.locked(key):
                found = _loaded(name, signature, key)  # another process may have been quicker
                if found is None:
                    body = _compiled(function, signature, flags)
                    _numba.store.write(key, body)
                    counts.compiled += 1
                    counts.names.append(name)
                    found = Native(name, signature, body)
    finally:
        counts.seconds += time.perf_counter() - started
    return found


def _loaded(name: str, signature: Signature, key: str) -> Native | None:
    """What is kept under ``key``; None where nothing is, or something that is no machine code."""
    body = _numba.store.read(key)
    if body is None or not llvm.compiler().fits(body):
        return None
    counts.loaded += 1
    return Native(name, signature, body)


def _compiled(function: Function, signature: Signature, flags: Mapping[str, Any]) -> bytes:
    """What numba and LLVM make of ``function``."""
    numba = _numba.load()
    from numba.core import sigutils  # type: ignore[import-untyped,import-not-found,unused-ignore]

    bare = {**flags, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(**bare)(_with_dispatchers(function))
    arguments, result = sigutils.normalize_signature(signature.text)  # type: ignore[no-untyped-call,unused-ignore]
    made = dispatcher._compiler.compile(arguments, result)
    return object_code(function.__name__, signature, made.fndesc.llvm_func_name, made.library.get_llvm_str())


def _helpers(function: Function) -> dict[str, Inlined]:
    """The ``inlined`` functions that ``function`` refers to by a global name."""
    names = _names_in(function.__code__)
    scope = function.__globals__
    return {name: scope[name] for name in names if isinstance(scope.get(name), Inlined)}


def _names_in(code: types.CodeType) -> list[str]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return sorted({*code.co_names, *(name for c in inner for name in _names_in(c))})


def _with_dispatchers(function: Function) -> Function:
    """``function`` with numba's objects in place of the ``inlined`` functions it calls."""
    found = _helpers(function)
    if not found:
        return function
    scope = {**function.__globals__, **{name: helper.dispatcher() for name, helper in found.items()}}
    copy = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    return functools.update_wrapper(copy, function)


def _source(function: Function) -> str:
    """The text that a hand-written function's machine code depends on: its own and its helpers'."""
    own = inspect.getsource(function)
    plain = {n: function.__globals__[n] for n in _names_in(function.__code__) if n in function.__globals__}
    return own + _described(plain)


def _described(names: Mapping[str, Any]) -> str:
    """What the values of ``names`` add to a kernel's key."""
    lines = []
    for name, value in sorted(names.items()):
        if isinstance(value, Inlined):
            lines.append(f"{name} = {_shown(value.flags)}\n{_source(value.function)}")
        elif isinstance(value, np.ndarray):
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            lines.append(f"{name} = {value.dtype}{value.shape} {digest}")
        elif isinstance(value, int | float | str | bool | tuple | np.generic):
            lines.append(f"{name} = {value!r}")
    return "\n".join(["", *lines])


fused = Fused(_fused, {})
