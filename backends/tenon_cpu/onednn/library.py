"""Find oneDNN's shared library, load it, and check its version.

The search order is the file that ``TENON_ONEDNN_LIBRARY`` names, the wheel ``onednn-cpu-gomp``, the system's
``libdnnl.so.3``. If a file is named, no other is tried, and a warning is issued if it cannot be used; the
other two may be absent. ``TENON_ONEDNN=0`` disables the search. ``outcome().reason`` describes the result for
``tenon doctor``; without the library NumPy computes.

Next: ``runtime.py`` holds the process's engine and its threads.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tenon.extend import Config, errors
from tenon_cpu.onednn.signatures import PRIMITIVES, STATUS, STATUS_NAMES, UNIMPLEMENTED, VALUES

WHEEL = "onednn-cpu-gomp"
SONAME = "libdnnl.so.3"
_OFF = frozenset({"0", "false", "no", "off"})
#: How long OpenMP's workers look for more work before they sleep; see ``_load``.
_SPIN = b"5000"
_RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB"}
_TYPES: dict[str, type] = {
    "p": ctypes.c_void_p,
    "m": ctypes.c_void_p,
    "h": ctypes.c_void_p,
    "d": ctypes.c_void_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "q": ctypes.c_int64,
    "f": ctypes.c_float,
    "z": ctypes.c_size_t,
}


class OneDnnError(errors.BackendError):
    """A oneDNN function returned a status other than success; ``status`` is its number."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def unimplemented(self) -> bool:
        """Whether the library has no kernel for this case, so that the caller may use another one."""
        return self.status == UNIMPLEMENTED


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


#: A C function with declared types, for which ctypes has no public class.
CFunction: TypeAlias = Any


@dataclass(frozen=True)
class Library:
    """A loaded oneDNN: ``functions[name]`` with types declared, the interpreter lock released during calls.

    ``quick[name]`` is the same function called with the lock held: 0.1 us less, for functions that return at
    once.
    """

    path: str
    version: tuple[int, int, int]
    runtime: str
    functions: dict[str, CFunction] = field(repr=False)
    quick: dict[str, CFunction] = field(repr=False)

    def call(self, name: str, *args: object) -> None:
        """Call a function that returns a status; raise OneDnnError unless it is success."""
        status = self.functions[name](*args)
        if status:
            raise failure(name, status, args)


@dataclass(frozen=True)
class Outcome:
    """The result of the search: the library or None, and a text: which one is in use, or why none is."""

    library: Library | None
    reason: str
    #: Whether the user named the file.
    named: bool = False


def failure(name: str, status: int, args: str | Sequence[object]) -> OneDnnError:
    """Return the error for a status; its text has the function, the name of the status and the arguments."""
    title = STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else "unknown"
    advice = (
        "Set TENON_ONEDNN=0 to compute with NumPy."
        if status != UNIMPLEMENTED
        else "This oneDNN has no kernel for it; use the NumPy kernel for this case."
    )
    return OneDnnError(f"{name} returned status {status} ({title}) for {_describe(args)}. {advice}", status)


def _describe(args: str | Sequence[object]) -> str:
    return args if isinstance(args, str) else f"({', '.join(_describe_argument(a) for a in args)})"


def _describe_argument(value: object) -> str:
    if isinstance(value, ctypes.Array):
        return str(list(value))
    if isinstance(value, ctypes.c_void_p):
        return f"pointer {value.value or 0:#x}"
    return "out" if type(value).__name__ == "CArgObject" else repr(value)


def find(config: Config) -> Outcome:
    """Search for the library with the settings of ``config``; does not raise if there is none."""
    switch = config.setting("onednn")
    if switch is not None and switch.strip().lower() in _OFF:
        return Outcome(None, f"switched off by TENON_ONEDNN={switch}; NumPy computes instead")
    named = config.setting("onednn_library")
    if named:
        library = _try(named)
        if isinstance(library, Library):
            return Outcome(library, f"oneDNN {_version_text(library)} ({library.runtime}) from {named}")
        return Outcome(
            None,
            f"TENON_ONEDNN_LIBRARY={named} cannot be used: {library}; NumPy computes instead",
            named=True,
        )
    tried = []
    for origin, path in _candidates():
        library = _try(path)
        if isinstance(library, Library):
            return Outcome(
                library, f"oneDNN {_version_text(library)} ({library.runtime}) from {origin}: {path}"
            )
        tried.append(f"{origin}: {library}")
    return Outcome(
        None, f"{'; '.join(tried)}; NumPy computes instead. `pip install {WHEEL}` brings the library"
    )


def _version_text(library: Library) -> str:
    return ".".join(str(part) for part in library.version)


def _candidates() -> Iterator[tuple[str, str]]:
    path = _wheel_file()
    if path is not None:
        yield f"the wheel {WHEEL}", str(path)
    yield "the system", SONAME


def _wheel_file() -> Path | None:
    """Return the library's path from the wheel's files; it is outside site-packages, in the environment's
    lib."""
    try:
        distribution = importlib.metadata.distribution(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    recorded = [Path(str(f.locate())) for f in distribution.files or () if f.name == SONAME]
    for path in (*recorded, Path(sys.prefix) / "lib" / SONAME):
        if path.exists():
            return path.resolve()
    return None


def _try(path: str) -> Library | str:
    """Return the library at ``path``, or a text: why it cannot be used."""
    try:
        functions, quick = _load(path)
    except OSError as error:
        return f"not loaded ({error})"
    for library in (functions, quick):
        for name, letters in STATUS.items():
            _declare(library, name, ctypes.c_int, letters)
        for name, (result, letters) in VALUES.items():
            _declare(library, name, _TYPES[result], letters)
        for kind, letters in PRIMITIVES.items():
            _declare(library, f"dnnl_{kind}_primitive_desc_create", ctypes.c_int, f"pp{letters}p")
    names = [*STATUS, *VALUES, *(f"dnnl_{kind}_primitive_desc_create" for kind in PRIMITIVES)]
    if not hasattr(functions, "dnnl_version"):
        return "it has no function dnnl_version, so it is not oneDNN"
    pointer = functions.dnnl_version()
    version = _Version.from_address(pointer)
    parts = (version.major, version.minor, version.patch)
    if version.major != 3:
        return f"it is version {'.'.join(map(str, parts))}; version 3 is needed"
    missing = [name for name in names if not hasattr(functions, name)]
    if missing:
        return f"version {'.'.join(map(str, parts))} lacks {', '.join(missing)}"
    runtime = _RUNTIMES.get(version.cpu_runtime)
    if runtime is None:
        return f"its CPU runtime is of kind {version.cpu_runtime}; sequential, OpenMP or TBB is needed"
    return Library(
        path,
        parts,
        runtime,
        {name: getattr(functions, name) for name in names},
        {name: getattr(quick, name) for name in names},
    )


def _declare(library: ctypes.CDLL, name: str, result: type, letters: str) -> None:
    function = getattr(library, name, None)
    if function is not None:
        function.restype, function.argtypes = result, [_TYPES[letter] for letter in letters]


def _load(path: str) -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """dlopen twice: the second handle is the same library, called with the interpreter lock held.

    GNU OpenMP reads its settings once, when it is loaded. By default its workers spin for milliseconds after
    a parallel region, on the core that the next kernel's thread needs; the user's own settings are left as
    they are.
    """
    c = ctypes.CDLL(None)
    is_unset = False
    if hasattr(c, "setenv"):
        c.getenv.restype = ctypes.c_void_p
        is_unset = not (c.getenv(b"GOMP_SPINCOUNT") or c.getenv(b"OMP_WAIT_POLICY"))
        if is_unset:
            c.setenv(b"GOMP_SPINCOUNT", _SPIN, 1)
    try:
        return ctypes.CDLL(path), ctypes.PyDLL(path)
    finally:
        if is_unset:
            c.unsetenv(b"GOMP_SPINCOUNT")
