"""Turn Python functions into machine code with numba, once per machine.

``compiled`` takes generated source, ``kernel`` decorates a hand-written function, ``inlined`` one that only
kernels call. Nothing here imports numba before the first kernel is used; without numba, or with
``TENON_NUMBA=0``, ``available()`` is false and the NumPy kernels serve.

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
import inspect
import linecache
import pickle
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon.extend import Config, errors
from tenon_cpu.jit.store import Store

Function = Callable[..., Any]

_OFF = frozenset({"0", "false", "no", "off"})
#: nnan and ninf would let LLVM assume that there is no NaN and no infinity; arcp and afn lose digits.
_SAFE_FASTMATH = frozenset({"contract", "reassoc", "nsz"})
_OLDEST = (0, 60)
#: What a whole entry that does not fit this process after all fails with.
_UNREADABLE = (
    pickle.PickleError,
    EOFError,
    LookupError,
    ImportError,
    AttributeError,
    TypeError,
    RuntimeError,
)


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
    """numba, imported at its first use; ``reason`` says why it is not used."""

    def __init__(self) -> None:
        self.module: Any = None
        self.reason: str | None = None
        self.asked = False
        self._store: Store | None = None

    def load(self) -> Any:
        """The module, or None."""
        if not self.asked:
            with _lock:
                if not self.asked:
                    self.reason = self._import()
                    self.asked = True
        return self.module

    def _import(self) -> str | None:
        config = Config.from_environment()
        if (config.setting("numba", "1") or "1").strip().lower() in _OFF:
            return "turned off by TENON_NUMBA"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                numba = importlib.import_module("numba")
        except ImportError as error:
            if getattr(error, "name", None) == "numba":
                return "numba is not installed; pip install 'tenon-platform[fast]'"
            return f"numba cannot be imported: {error}"
        if tuple(int(part) for part in numba.__version__.split(".")[:2]) < _OLDEST:
            return f"numba {numba.__version__} is older than {'.'.join(map(str, _OLDEST))}"
        if numba.config.DISABLE_JIT:
            return "turned off by NUMBA_DISABLE_JIT"
        if numba.config.THREADING_LAYER == "default":
            numba.config.THREADING_LAYER = "omp"  # one libgomp, and one set of threads, with oneDNN
        self.module = numba
        return None

    @property
    def store(self) -> Store:
        """Where machine code for this processor, Python and numba is kept."""
        if self._store is None:
            self._store = Store(Config.from_environment().cache_folder() / "kernels" / _platform(self.module))
        return self._store


_numba = _Numba()


def available() -> bool:
    """Whether kernels can be compiled here; imports numba at the first call."""
    return _numba.load() is not None


def reason() -> str | None:
    """Why ``available()`` is false; None where it is true."""
    _numba.load()
    return _numba.reason


def store() -> Store:
    """The machine code on disk; only where ``available()``."""
    return _numba.store


def _platform(numba: Any) -> str:
    """Names everything that machine code depends on besides its source."""
    from numba.core.registry import cpu_target  # type: ignore[import-untyped,import-not-found,unused-ignore]

    parts = (
        sys.implementation.cache_tag,
        numba.__version__,
        importlib.import_module("llvmlite").__version__,
        importlib.import_module("numpy").__version__,
        *cpu_target.target_context.codegen().magic_tuple(),
    )
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
    return f"numba-{numba.__version__}-{sys.implementation.cache_tag}-{parts[-2]}-{digest}"


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
            self._ready = _numba.module.njit(**self.flags)(_with_dispatchers(self.function))
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

    def __init__(self, function: Function, signatures: tuple[str, ...], flags: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.signatures = signatures
        self.flags = _flags(flags)
        self._ready: Any = None

    def __call__(self, *args: Any) -> Any:
        """Run it; where time counts call what ``ready()`` returns."""
        return (self._ready or self.ready())(*args)

    def ready(self) -> Any:
        """The compiled function."""
        if self._ready is None:
            with _lock:
                if self._ready is None:
                    self._ready = _build(self.function, self.signatures, self.flags, _source(self.function))
        return self._ready


def kernel(*signatures: str, **flags: Any) -> Callable[[Function], Kernel]:
    """Decorate a function to compile it for ``signatures``, such as ``"void(float32[::1], int64)"``."""

    def wrap(function: Function) -> Kernel:
        return Kernel(function, signatures, flags)

    return wrap


def inlined(function: Function | None = None, **flags: Any) -> Any:
    """Decorate a function that kernels call; it takes its callers' types and becomes part of them."""
    if function is not None:
        return Inlined(function, {})
    return lambda f: Inlined(f, flags)


_generated: dict[tuple[Any, ...], Any] = {}


def compiled(
    source: str,
    name: str,
    signature: str | Sequence[str] | None = None,
    namespace: Mapping[str, Any] | None = None,
    **flags: Any,
) -> Any:
    """The function ``name`` that ``source`` defines, as machine code.

    ``signature`` is one or several of numba's; None compiles at the first call, for the types it comes
    with. ``namespace`` holds what the source refers to: modules, numbers, ``inlined`` functions. Asking again
    for the same gives the same function.
    """
    if _numba.load() is None:
        raise errors.BackendError(f"{name} cannot be compiled: {_numba.reason}.")
    signatures = () if signature is None else (signature,) if isinstance(signature, str) else tuple(signature)
    names = dict(namespace or {})
    checked = _flags(flags)
    text = source + _described(names)
    key = (text, name, signatures, _shown(checked))
    with _lock:
        found = _generated.get(key)
        if found is None:
            filename = f"<tenon {name} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
            linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
            scope: dict[str, Any] = {"__name__": __name__, **names}  # numba asks for a module that exists
            exec(builtins.compile(source, filename, "exec"), scope)
            found = _generated[key] = _build(scope[name], signatures, checked, text)
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


def _build(function: Function, signatures: tuple[str, ...], flags: dict[str, Any], text: str) -> Any:
    """numba's dispatcher for ``function`` with every signature compiled or loaded."""
    numba = _numba.load()
    if numba is None:
        raise errors.BackendError(f"{function.__name__} cannot be compiled: {_numba.reason}.")
    dispatcher = numba.njit(**flags)(_with_dispatchers(function))
    dispatcher._cache = _entries(dispatcher, f"{text}\n{_shown(flags)}")
    compile_one = dispatcher.compile

    def compile_once(signature: Any) -> Any:
        with _numba.store.locked(dispatcher._cache.key(signature)):
            return compile_one(signature)

    dispatcher.compile = compile_once
    for signature in signatures:
        dispatcher.compile(signature)
    if signatures:
        dispatcher.disable_compile()
    return dispatcher


def _entries(dispatcher: Any, text: str) -> Any:
    """The cache of one dispatcher, in the form numba asks for."""
    from numba.core import compiler, serialize, sigutils
    from numba.core.caching import NullCache

    class Entries(NullCache):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            self.started = 0.0

        def key(self, signature: Any) -> str:
            arguments, _ = sigutils.normalize_signature(signature)
            whole = f"{text}\n{arguments}"
            return f"{dispatcher.py_func.__name__}-{hashlib.sha256(whole.encode()).hexdigest()[:24]}"

        def load_overload(self, signature: Any, target_context: Any) -> Any:
            self.started = time.perf_counter()
            body = _numba.store.read(self.key(signature))
            if body is None:
                return None
            target_context.refresh()
            try:
                found = compiler.CompileResult._rebuild(target_context, *serialize.loads(body))
            except _UNREADABLE:
                return None  # compiled again, and replaced
            counts.loaded += 1
            counts.seconds += time.perf_counter() - self.started
            return found

        def save_overload(self, signature: Any, result: Any) -> None:
            counts.compiled += 1
            counts.names.append(dispatcher.py_func.__name__)
            if not result.library.has_dynamic_globals and not result.lifted:
                _numba.store.write(self.key(signature), serialize.dumps(result._reduce()))
            counts.seconds += time.perf_counter() - self.started

    return Entries()


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
