"""Compile Python functions to machine code with numba, once per machine.

``compiled`` takes generated source, ``kernel`` decorates a hand-written function, ``inlined`` one that only
kernels call. numba is imported only to compile: machine code that is on disk is loaded without it
(``native.py``). Without numba, or with ``TENON_NUMBA=0``, ``available()`` is false and NumPy's kernels are
used.

Signatures are explicit, so that nothing is compiled by accident: a call with other types is a TypeError.
Code runs without the interpreter lock, divides as NumPy does, checks no bounds, and treats NaN and infinity
as IEEE 754 does: of ``fastmath`` only ``contract`` (fused multiply-add) is on by default, and a kernel may
add ``reassoc`` or ``nsz``. ``store.py`` keeps the machine code.
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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tenon.extend import Config, environment, errors
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.flags import FASTMATH, Flags, flags_of, text_of
from tenon_cpu.jit.compiler.native import Native, Signature, described, object_code
from tenon_cpu.jit.compiler.store import Store
from tenon_cpu.jit.compiler.undisturbed import undisturbed

if TYPE_CHECKING:
    from numba.core.typing import Signature as Typed
    from numba.types import Type

#: A function that numba compiles or has compiled, for the arguments that its signature lists.
Function = Callable[..., Any]
#: An argument of a kernel.
Argument = np.ndarray | float | np.number | np.bool_

_OFF = frozenset({"0", "false", "no", "off"})
_OLDEST = (0, 60)
_INSTALL = "pip install 'tenon-platform[fast]'"


@dataclass
class Counts:
    """The numbers of kernels that this process loaded and compiled, the seconds taken, what it compiled."""

    loaded: int = 0
    compiled: int = 0
    seconds: float = 0.0
    names: list[str] = field(default_factory=list)


counts = Counts()
_lock = threading.RLock()


class _Numba:
    """numba, imported at the first compilation; ``reason`` is why it is not used, or None."""

    def __init__(self) -> None:
        self.module: types.ModuleType | None = None
        self._reason: str | None = None
        self._checked = False
        self._store: Store | None = None

    @property
    def reason(self) -> str | None:
        """Why there are no kernels; None if there are."""
        if not self._checked:
            with _lock:
                if not self._checked:
                    self._reason = self._find()
                    self._checked = True
        return self._reason

    def load(self) -> types.ModuleType:
        """The imported module; BackendError if it cannot be used."""
        with _lock:
            reason = self.reason or (self._import() if self.module is None else None)
            if self.module is None:
                raise errors.BackendError(f"kernels cannot be compiled: {reason}.")
            return self.module

    def _find(self) -> str | None:
        if (Config.from_environment().setting("numba", "1") or "1").strip().lower() in _OFF:
            return "turned off by TENON_NUMBA"
        version = _version("numba")
        if version is None or not llvm.available():
            return f"numba is not installed; {_INSTALL}"
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
            return f"numba {version} is older than {'.'.join(map(str, _OLDEST))}"
        if environment("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
            return "turned off by NUMBA_DISABLE_JIT"
        # Kernels on disk were compiled by this version of numba with this NumPy: it can be imported.
        return None if self.store.entries()[0] else self._import()

    @undisturbed
    def _import(self) -> str | None:
        # If a signal interrupted the import, the next one would initialise extension modules twice.
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
        """The store of machine code for this processor, Python and numba."""
        if self._store is None:
            self._store = Store(Config.from_environment().cache_folder() / "kernels" / _platform())
        return self._store


_numba = _Numba()


def available() -> bool:
    """Whether kernels can be compiled here; imports numba only if none is on disk yet."""
    return _numba.reason is None


def reason() -> str | None:
    """Why ``available()`` is false; None where it is true."""
    return _numba.reason


def store() -> Store:
    """The machine code on disk; only if ``available()``."""
    return _numba.store


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _platform() -> str:
    """The name of all that machine code depends on besides its source."""
    compiler = llvm.compiler()
    version = _version("numba")
    parts = (
        sys.implementation.cache_tag,
        version,
        _version("llvmlite"),
        np.__version__,
        compiler.target.triple,
        compiler.cpu,
        compiler.features,
        environment("NUMBA_CPU_NAME"),
        environment("NUMBA_CPU_FEATURES"),
    )
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
    return f"numba-{version}-{sys.implementation.cache_tag}-{compiler.cpu}-{digest}"


class Inlined:
    """A function for kernels to call; see ``inlined``."""

    def __init__(self, function: Function, fastmath: Collection[str] = FASTMATH) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.flags = flags_of(fastmath)
        self._dispatcher: Function | None = None

    # The types are those of ``function``.
    def __call__(self, *args: Any) -> Any:
        """Run it as plain Python, for tests of the formula."""
        return self.function(*args)

    def dispatcher(self) -> Function:
        """The object that numba compiles into the callers."""
        if self._dispatcher is None:
            self._dispatcher = self._make_dispatcher()
        return self._dispatcher

    def _make_dispatcher(self) -> Function:
        return _numba.load().njit(**self.flags)(_with_dispatchers(self.function))


class Fused(Inlined):
    """``fused(a, b, c)`` in a kernel is the processor's fused multiply-add ``a * b + c``, rounded once."""

    def _make_dispatcher(self) -> Function:
        from numba.extending import intrinsic

        @intrinsic  # type: ignore[untyped-decorator]
        def fused(typing: object, a: Type, b: Type, c: Type) -> tuple[Typed, Function]:
            return a(a, a, a), lambda context, builder, signature, values: builder.fma(*values)

        return fused


def _fused(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """The fused multiply-add as plain Python: the product is exact in float64."""
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


class Kernel:
    """A hand-written function, compiled or loaded at its first call; see ``kernel``."""

    def __init__(self, function: Function, signature: str, fastmath: Collection[str]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.signature = Signature(signature)
        self.flags = flags_of(fastmath)
        self._native: Native | None = None

    def __call__(self, *args: Argument) -> int | None:
        """Run it; the function that ``ready()`` returns is quicker."""
        return self.native().call(*args)

    def ready(self) -> Function:
        """The compiled function, a built-in."""
        return self.native().call

    def native(self) -> Native:
        """The machine code, compiled or loaded at the first call."""
        return self._native or self._build()

    @undisturbed
    def _build(self) -> Native:
        with _lock:
            native = self._native
            if native is None:
                text = _source(self.function)
                native = self._native = _build(self.function, self.signature, self.flags, text)
        return native


def kernel(signature: str, fastmath: Collection[str] = FASTMATH) -> Callable[[Function], Kernel]:
    """Decorate a function to compile it for ``signature``, such as ``"void(float32[::1], int64)"``."""
    return lambda function: Kernel(function, signature, fastmath)


@overload
def inlined(function: Function) -> Inlined: ...


@overload
def inlined(*, fastmath: Collection[str]) -> Callable[[Function], Inlined]: ...


def inlined(
    function: Function | None = None, *, fastmath: Collection[str] = FASTMATH
) -> Inlined | Callable[[Function], Inlined]:
    """Decorate a function that kernels call; it is compiled into each of them, for the types of its call."""
    if function is not None:
        return Inlined(function)
    return lambda f: Inlined(f, fastmath)


_generated: dict[tuple[str, str, str, str], Function] = {}


def compiled(
    source: str,
    name: str,
    signature: str,
    namespace: Mapping[str, object] | None = None,
    fastmath: Collection[str] = FASTMATH,
) -> Function:
    """The function ``name`` that ``source`` defines, as machine code for ``signature``.

    ``namespace`` holds the names that the source refers to: modules, numbers, ``inlined`` functions. Equal
    arguments return the same function.
    """
    names = dict(namespace or {})
    flags = flags_of(fastmath)
    text = source + _described(names)
    key = (text, name, signature, text_of(flags))
    return _generated.get(key) or _generate(key, source, names, flags)


@undisturbed
def _generate(
    key: tuple[str, str, str, str], source: str, names: Mapping[str, object], flags: Flags
) -> Function:
    text, name, signature, _ = key
    with _lock:
        function = _generated.get(key)
        if function is None:
            filename = f"<tenon {name} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
            scope: dict[str, Any] = {"__name__": __name__, **names}  # numba looks up the module by its name
            exec(builtins.compile(source, filename, "exec"), scope)
            function = _build(scope[name], Signature(signature), flags, text).call
            _generated[key] = function
    return function


def _build(function: Function, signature: Signature, flags: Flags, text: str) -> Native:
    """The machine code of ``function``: from disk, or compiled and written to disk."""
    name = function.__name__
    if _numba.reason is not None:
        raise errors.BackendError(f"{name} cannot be compiled: {_numba.reason}.")
    source = f"{text}\n{text_of(flags)}\n{described(name, signature)}"
    key = f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:24]}"
    started = time.perf_counter()
    try:
        native = _load(name, signature, key)
        if native is None:
            with _numba.store.locked(key):
                native = _load(name, signature, key)  # another process may have been quicker
                if native is None:
                    body = _compile(function, signature, flags)
                    _numba.store.write(key, body)
                    counts.compiled += 1
                    counts.names.append(name)
                    native = Native(name, signature, body)
    finally:
        counts.seconds += time.perf_counter() - started
    return native


def _load(name: str, signature: Signature, key: str) -> Native | None:
    """The kernel that is kept under ``key``; None if there is none, or only a damaged one."""
    body = _numba.store.read(key)
    if body is None or not llvm.compiler().fits(body):
        return None
    counts.loaded += 1
    return Native(name, signature, body)


def _compile(function: Function, signature: Signature, flags: Flags) -> bytes:
    """The object file that numba and LLVM compile ``function`` to."""
    numba = _numba.load()
    from numba.core import sigutils

    bare = {**flags, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(**bare)(_with_dispatchers(function))
    arguments, result = sigutils.normalize_signature(signature.text)  # type: ignore[no-untyped-call,unused-ignore]
    done = dispatcher._compiler.compile(arguments, result)
    return object_code(function.__name__, signature, done.fndesc.llvm_func_name, done.library.get_llvm_str())


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
    helpers = _helpers(function)
    if not helpers:
        return function
    scope = {**function.__globals__, **{name: helper.dispatcher() for name, helper in helpers.items()}}
    copy = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    return functools.update_wrapper(copy, function)


def _source(function: Function) -> str:
    """The source that a hand-written function's machine code depends on: its own and its helpers'."""
    scope = {n: function.__globals__[n] for n in _names_in(function.__code__) if n in function.__globals__}
    return inspect.getsource(function) + _described(scope)


def _described(names: Mapping[str, object]) -> str:
    """The text that the values of ``names`` add to a kernel's key."""
    lines = []
    for name, value in sorted(names.items()):
        if isinstance(value, Inlined):
            own = "" if type(value) is Inlined else inspect.getsource(type(value))  # an intrinsic's code
            lines.append(f"{name} = {text_of(value.flags)}\n{_source(value.function)}{own}")
        elif isinstance(value, np.ndarray):
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            lines.append(f"{name} = {value.dtype}{value.shape} {digest}")
        elif isinstance(value, int | float | str | bool | tuple | np.generic):
            lines.append(f"{name} = {value!r}")
    return "\n".join(["", *lines])


fused = Fused(_fused)
