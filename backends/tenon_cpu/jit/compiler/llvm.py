"""Compile LLVM text to machine code with llvmlite, and keep it on disk as that of numba is.

A module's entry is ``void entry(ptr table, i64 threads)``. With two or more threads it hands its work to
libgomp's team, the one that oneDNN and numba use: starting it costs 2 us, and cores are never shared by two
kinds of threads. A forked child, which has no team, works on one thread.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import importlib
import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from tenon.extend import Config, environment, errors
from tenon_cpu import threads
from tenon_cpu.jit.compiler.store import Store
from tenon_cpu.jit.compiler.undisturbed import undisturbed
from tenon_cpu.jit.emission import float16 as codegen_float16
from tenon_cpu.jit.emission import mathlib

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine, ModuleRef

#: The entry of a module, called with the address of its table and the number of threads.
Entry = Callable[[int, int], None]
#: What ctypes finds by a name: a function of a library, or an entry.
_Function = Entry | Callable[..., object]

_OFF = frozenset({"0", "false", "no", "off"})
_lock = threading.RLock()

#: Calls ``work(table, first, last)`` on parts of ``count`` pieces, on a team; then ``after(table)``.
DRIVER = """
define void @part(ptr %data) {{
entry:
  %t32 = call i32 @omp_get_thread_num()
  %n32 = call i32 @omp_get_num_threads()
  %t = sext i32 %t32 to i64
  %n = sext i32 %n32 to i64
  %table = load ptr, ptr %data
  %at = getelementptr i64, ptr %data, i64 1
  %count = load i64, ptr %at
  %low = mul i64 %count, %t
  %first = sdiv i64 %low, %n
  %next = add i64 %t, 1
  %high = mul i64 %count, %next
  %last = sdiv i64 %high, %n
  call void @work(ptr %table, i64 %first, i64 %last)
  ret void
}}
define void @entry(ptr %table, i64 %threads) {{
entry:
  %data = alloca [2 x i64], align 16
  {count}
  %limit = load i64, ptr @tenon_team
  %below = icmp slt i64 %threads, %limit
  %fewer = select i1 %below, i64 %threads, i64 %limit
  %short = icmp slt i64 %count, %fewer
  %size = select i1 %short, i64 %count, i64 %fewer
  %many = icmp sgt i64 %size, 1
  br i1 %many, label %team, label %alone
team:
  store ptr %table, ptr %data
  %at = getelementptr i64, ptr %data, i64 1
  store i64 %count, ptr %at
  %n = trunc i64 %size to i32
  call void @GOMP_parallel(ptr @part, ptr %data, i32 %n, i32 0)
  br label %after
alone:
  call void @work(ptr %table, i64 0, i64 %count)
  br label %after
after:
  {after}
  ret void
}}
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare void @GOMP_parallel(ptr, ptr, i32, i32)
@tenon_team = external global i64
"""
#: At level 3 LLVM unrolls nested short loops completely and searches the result for vectors: a layer norm of
#: 17 x 16 numbers then takes 1 s, at level 2 0.03 s, and no kernel was quicker for it by more than noise.
_LEVEL = 2
#: The number of threads to pass to an entry that can use all that there are.
ALL = 1 << 30


def driver(count: int | None, after: bool = False) -> str:
    """The text of an entry over ``count`` pieces of work; None reads it from the table's first word."""
    text = "%count = load i64, ptr %table" if count is None else f"%count = add i64 0, {count}"
    return DRIVER.format(count=text, after="call void @after(ptr %table)" if after else "")


class Counts:
    """The numbers of modules that this process compiled and that it found on disk."""

    compiled = 0
    loaded = 0


counts = Counts()


@functools.cache
def available() -> bool:
    """Whether llvmlite is installed and not turned off (``TENON_NUMBA=0``)."""
    return reason() is None


@functools.cache
def reason() -> str | None:
    """Why ``available()`` is false; None where it is true."""
    if (Config.from_environment().setting("numba", "1") or "1").strip().lower() in _OFF:
        return "turned off by TENON_NUMBA"
    try:
        importlib.import_module("llvmlite.binding")
    except ImportError as error:
        return f"llvmlite cannot be imported ({error}); pip install 'tenon-platform[fast]'"
    return None


def _processor(llvm: ModuleType) -> tuple[str, str]:
    """The name and features of the target processor: this one, or the one that numba's variables name."""
    name, features = environment("NUMBA_CPU_NAME"), environment("NUMBA_CPU_FEATURES")
    if features is None:
        features = "" if name == "generic" else llvm.get_host_cpu_features().flatten()
    wide = "+avx512f" in features.split(",")
    return name or llvm.get_host_cpu_name(), features + (",-prefer-256-bit" if wide else "")


class _Compiler:
    """LLVM for this processor."""

    def __init__(self) -> None:
        self.llvm: ModuleType = importlib.import_module("llvmlite.binding")
        self.llvm.initialize_native_target()
        self.llvm.initialize_native_asmprinter()
        self.cpu, self.features = _processor(self.llvm)
        self.has_fma = "+fma" in self.features.split(",")
        self.target = self.llvm.Target.from_default_triple()
        self.machine = self.target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3, jit=True
        )
        self.team = _symbols(self.llvm)
        _team.value = threads.usable() if self.team else 1
        threads.on_change(self._resize)
        facts = (self.llvm.llvm_version_info, self.cpu, self.features, self.target.triple, _LEVEL)
        text = "\n".join(map(str, facts))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        self.store = Store(Config.from_environment().cache_folder() / "kernels" / f"llvm-{self.cpu}-{digest}")
        #: The first bytes of this machine's object files.
        self.magic = self.machine.emit_object(self.llvm.parse_assembly(""))[:4]
        self.engines: list[ExecutionEngine] = []
        if "+f16c" not in self.features.split(","):
            self._define_float16()

    def _define_float16(self) -> None:
        """Compile the conversions that LLVM calls where the processor has no instruction for them."""
        engine = self.loaded(self.machine.emit_object(self.llvm.parse_assembly(codegen_float16.TEXT)))
        define_symbols({name: engine.get_function_address(name) for name in codegen_float16.NAMES}, self.llvm)

    def _resize(self, count: int) -> None:
        _team.value = count if self.team else 1

    @undisturbed
    def function(self, text: str, name: str) -> int:
        """The address of the function ``name`` of the module ``text``."""
        key = f"cluster-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        body = self.store.read(key)
        if body is None or not self.fits(body):
            body = self.machine.emit_object(self.optimised(text))
            self.store.write(key, body)
            counts.compiled += 1
        else:
            counts.loaded += 1
        return int(self.loaded(body).get_function_address(name))

    def fits(self, body: bytes) -> bool:
        """Whether ``body`` is an object file: LLVM's loader ends the process on anything else."""
        return bool(body[:4] == self.magic)

    def loaded(self, body: bytes) -> ExecutionEngine:
        """An engine with an object file's code, which lives as long as the process."""
        engine = self.llvm.create_mcjit_compiler(self.llvm.parse_assembly(""), self.machine)
        self.engines.append(engine)  # even if it fails below: its destructor frees the shared machine
        engine.add_object_file(self.llvm.ObjectFileRef.from_data(body))
        engine.finalize_object()
        return engine

    def optimised(self, text: str) -> ModuleRef:
        """The module after LLVM's passes; BackendError if ``text`` is no valid module."""
        try:
            module = self.llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise errors.BackendError(f"generated code is not valid LLVM: {error}\n{text}") from error
        module.triple = self.target.triple
        options = self.llvm.create_pipeline_tuning_options(speed_level=_LEVEL)
        options.loop_vectorization = True
        options.slp_vectorization = True
        builder = self.llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)
        return module


def _symbols(llvm: ModuleType) -> bool:
    """Define the C library's functions as symbols in LLVM; return whether libgomp can be loaded."""
    try:
        library = ctypes.CDLL("libm.so.6")
    except OSError:
        library = ctypes.CDLL(ctypes.util.find_library("m") or None)
    mathematics = [own for name in sorted(mathlib.LIBRARY | {"sqrt", "lgamma"}) for own in (name, f"{name}f")]
    define_symbols({name: _address_in(library, name) for name in (*mathematics, *_MEMORY)}, llvm)
    define_symbols({"tenon_team": ctypes.addressof(_team)}, llvm)
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    try:
        team = ctypes.CDLL("libgomp.so.1")
        define_symbols({name: _address_in(team, name) for name in names}, llvm)
    except (OSError, AttributeError):
        # Never called: there is always one thread.
        define_symbols(dict.fromkeys(names, _address_in(library, "exp")), llvm)
        return False
    return True


def _address_in(library: ctypes.CDLL, name: str) -> int:
    return address_of(getattr(library, name))


_MEMORY = ("aligned_alloc", "free", "memcpy", "memmove", "memset")
_known: set[str] = set()


def define_symbols(symbols: dict[str, int], llvm: ModuleType | None = None) -> None:
    """Define symbols in LLVM, name -> address: external functions and objects that machine code refers to."""
    llvm = llvm or compiler().llvm
    for name, address in symbols.items():
        llvm.add_symbol(name, address)
    _known.update(symbols)


def is_defined(name: str) -> bool:
    """Whether ``name`` is a symbol in LLVM, which ends the process on references to undefined symbols."""
    return name in _known


_compiler: _Compiler | None = None
_entries: dict[str, Entry] = {}
#: Threads that a kernel may use; machine code reads it at every call.
_team = ctypes.c_int64(1)


def _after_fork() -> None:
    _team.value = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def compiler() -> _Compiler:
    """The process's compiler, set up at the first call."""
    return _compiler or _make_compiler()


@undisturbed
def _make_compiler() -> _Compiler:
    global _compiler
    with _lock:
        if _compiler is None:
            _compiler = _Compiler()
    return _compiler


_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def load(text: str) -> Entry:
    """The function ``entry(table, threads)`` of a module; the same for the same text."""
    return _entries.get(text) or _make_entry(text)


@undisturbed
def _make_entry(text: str) -> Entry:
    with _lock:
        entry = _entries.get(text)
        if entry is None:
            entry = _entries[text] = entry_at(compiler().function(text, "entry"))
    return entry


def entry_at(address: int) -> Entry:
    """The entry whose machine code lies at ``address``."""
    return _PROTOTYPE(address)


def address_of(function: _Function) -> int:
    """The address of the machine code of an entry, or of a C function."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]


def assembly(text: str) -> str:
    """The assembly that LLVM emits for a module, to inspect its loops."""
    result: str = compiler().machine.emit_assembly(compiler().optimised(text))
    return result


def team_size() -> int:
    """The number of threads that a large kernel uses."""
    compiler()
    return _team.value


def set_team_size(count: int) -> None:
    """Let kernels use ``count`` threads, if libgomp could be loaded."""
    _team.value = count if compiler().team else 1
