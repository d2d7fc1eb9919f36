"""Keep and call machine code that numba compiled, without importing numba.

Importing numba and its types takes half a second, as long as everything else that a program of some hundred
steps needs before it runs. So numba is the compiler only. The module that it makes of a kernel is linked with
the functions below into an object file, and a process that finds it on disk needs LLVM's loader alone:

- ``call`` is called by Python: it checks the arguments' types, reads addresses, shapes and strides from the
  arrays' structs (NumPy's documented C interface) and releases the interpreter lock;
- ``entry`` runs a kernel whose last two arguments are ``start`` and ``stop`` on the team of threads;
- two functions of numba's allocator, which kernels with scratch memory call.

An array is passed to a kernel as its owner and parent (both null), the number of elements, the size of one,
the address, the shape and the strides. Nothing on disk is ever unpickled; damaged files are compiled again
(``store.py``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from tenon.extend import errors
from tenon_cpu.jit.compiler import builtin
from tenon_cpu.jit.compiler import llvm as llvm
from tenon_cpu.jit.emission.functions import Code

_ARGUMENT = re.compile(r"(\w+)(?:\[([^\]]*)\])?")
#: Scalars: the type that LLVM passes, Python's function of the conversion, its result's type, and the cast.
_SCALARS = {
    "int64": ("i64", "PyLong_AsLongLong", "i64", ""),
    "uint8": ("i8", "PyLong_AsLongLong", "i64", "trunc i64 {} to i8"),
    "boolean": ("i8", "PyLong_AsLongLong", "i64", "trunc i64 {} to i8"),
    "float32": ("float", "PyFloat_AsDouble", "double", "fptrunc double {} to float"),
    "float64": ("double", "PyFloat_AsDouble", "double", ""),
}
#: NumPy's flags of arrays that kernels take: contiguous in C order, aligned, writable.
_CARRAY = 0x0001 | 0x0100 | 0x0400
#: The functions of numba's code for memory. A block begins with numba's header: reference count, destructor
#: and its argument, address, size.
_ALLOCATOR = """
define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
entry:
  %most = add i64 %size, 191
  %whole = and i64 %most, -64
  %made = call ptr @aligned_alloc(i64 64, i64 %whole)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %done, label %fill
fill:
  %data = getelementptr i8, ptr %made, i64 64
  store i64 1, ptr %made
  %at.end = getelementptr i64, ptr %made, i64 1
  store ptr null, ptr %at.end
  %at.info = getelementptr i64, ptr %made, i64 2
  store ptr null, ptr %at.info
  %at.data = getelementptr i64, ptr %made, i64 3
  store ptr %data, ptr %at.data
  %at.size = getelementptr i64, ptr %made, i64 4
  store i64 %size, ptr %at.size
  br label %done
done:
  ret ptr %made
}
define void @NRT_MemInfo_call_dtor(ptr %owner) {
entry:
  call void @free(ptr %owner)
  ret void
}
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
"""


class Parameter(NamedTuple):
    """A parameter of a kernel: its dtype, and the rank of an array; None for a number."""

    dtype: str
    rank: int | None

    @property
    def words(self) -> list[str]:
        """The LLVM types of the words that are passed for it."""
        if self.rank is None:
            return [_SCALARS[self.dtype][0]]
        return ["ptr", "ptr", "i64", "i64", "ptr", *["i64"] * (2 * self.rank)]


class Signature:
    """A parsed signature such as ``"void(float32[:,::1], int64, int64)"``; ArgumentError if unsupported."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.result, _, inner = text.partition("(")
        self.parameters = [
            Parameter(dtype, axes.count(",") + 1 if axes else None)
            for dtype, axes in _ARGUMENT.findall(inner.rstrip(")"))
        ]
        known = all(p.dtype in (_SCALARS if p.rank is None else builtin.DTYPES) for p in self.parameters)
        if self.result not in ("void", "int64") or not known:
            raise errors.ArgumentError(
                f"a kernel cannot have the signature {text!r}: it returns void or int64, and takes "
                f"{', '.join(_SCALARS)} and contiguous arrays of {', '.join(builtin.DTYPES)}."
            )

    @property
    def words(self) -> list[str]:
        """The LLVM types of all words passed, after numba's two pointers to results."""
        return [word for p in self.parameters for word in p.words]

    @property
    def shared(self) -> bool:
        """Whether a team can share the work: the last two arguments are a range."""
        integer = Parameter("int64", None)
        return self.result == "void" and self.parameters[-2:] == [integer, integer]


class Native:
    """A kernel's machine code: a function for Python, and an entry for a team if the work can be shared."""

    def __init__(self, name: str, signature: Signature, body: bytes) -> None:
        builtin.define_python()
        engine = llvm.compiler().loaded(body)
        address = engine.get_function_address("call")
        self.call = builtin.function(builtin.define(name, signature.text, address, builtin.FASTCALL), None)
        self.parameters = signature.parameters[:-2]
        #: None if the last two arguments are no range.
        self.entry: llvm.Entry | None = None
        if signature.shared:
            self.entry = llvm.entry_at(engine.get_function_address("entry"))


def object_code(name: str, signature: Signature, function: str, module: str) -> bytes:
    """The object file of a kernel: numba's ``module`` as text, in which ``function`` is the kernel.

    BackendError if it calls functions of numba's own library.
    """
    compiler = llvm.compiler()
    builtin.define_python()
    linked = compiler.llvm.parse_assembly(module)
    for text in ("\n".join(_wrappers(name, signature, function)), _ALLOCATOR):
        linked.link_in(compiler.llvm.parse_assembly(text))
    undefined = [f.name for f in linked.functions if f.is_declaration and not f.name.startswith("llvm.")]
    undefined += [g.name for g in linked.global_variables if g.is_declaration]
    unknown = sorted(w for w in undefined if not llvm.is_defined(w))
    if unknown:
        raise errors.BackendError(
            f"{name} calls {', '.join(unknown)}, which only numba defines: write it without these calls."
        )
    linked.verify()
    body: bytes = compiler.machine.emit_object(linked)
    return body


def described(name: str, signature: Signature) -> str:
    """The text that is linked with a kernel, which is part of its key on disk."""
    return "\n".join([*_wrappers(name, signature, "kernel"), _ALLOCATOR])


def _wrappers(name: str, signature: Signature, function: str) -> list[str]:
    text = [_declared(function, signature), _call(name, signature, function)]
    return [*text, _work(signature, function), llvm.driver(None)] if signature.shared else text


def _declared(function: str, signature: Signature) -> str:
    lines = [f'declare i32 @"{function}"({", ".join(["ptr", "ptr", *signature.words])})']
    for name, kind in builtin.PYTHON.items():
        result, _, rest = kind.partition(" ")
        lines.append(f"declare {result} @{name}{rest}")
    lines += [
        f"@{name} = external global i8"
        for name in (*builtin.OBJECTS, *(f"tenon_{d}" for d in builtin.DTYPES))
    ]
    return "\n".join(lines)


class _Text(Code):
    """Code that reads the structs of objects, with early exits."""

    def field(self, base: str, offset: int, kind: str = "ptr") -> str:
        """Load the ``kind`` at ``offset`` bytes behind ``base``."""
        return self.let(f"load {kind}, ptr {self.let(f'getelementptr i8, ptr {base}, i64 {offset}')}")

    def unless(self, wrong: str, target: str) -> None:
        """Jump to ``target`` if ``wrong`` is true."""
        n = len(self.lines)
        self.do(f"br i1 {self.let(wrong)}, label %{target}, label %right{n}")
        self.label(f"right{n}")


def _call(name: str, signature: Signature, function: str) -> str:
    """``PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n)``."""
    text = _Text()
    text.unless(f"icmp ne i64 %n, {len(signature.parameters)}", "refused")
    passed: list[str] = []
    for i, parameter in enumerate(signature.parameters):
        argument = text.field("%args", 8 * i)
        if parameter.rank:
            values = _array(text, argument, parameter)
        else:
            values = [_number(text, argument, parameter.dtype)]
        passed += [f"{kind} {value}" for kind, value in zip(parameter.words, values, strict=True)]
    state = text.let("call ptr @PyEval_SaveThread()")
    status = text.let(f'call i32 @"{function}"(ptr %result, ptr %error, {", ".join(passed)})')
    text.do(f"call void @PyEval_RestoreThread(ptr {state})")
    text.unless(f"icmp sgt i32 {status}, 0", "failed")
    if signature.result == "void":
        text.do("call void @Py_IncRef(ptr @tenon_none)")
        text.do("ret ptr @tenon_none")
    else:
        result = text.let("load i64, ptr %result")
        text.do(f"ret ptr {text.let(f'call ptr @PyLong_FromLongLong(i64 {result})')}")
    refused = f"{name} is compiled for {signature.text}: give it these types, and writable arrays in C order."
    return "\n".join(
        [
            _constant("refusal", refused),
            _constant("failure", f"{name} could not allocate memory for a temporary array."),
            "define ptr @call(ptr %self, ptr %args, i64 %n) {",
            "entry:",
            "  %result = alloca i64",
            "  %error = alloca ptr",
            *text.lines,
            "refused:",
            "  call void @PyErr_SetString(ptr @tenon_TypeError, ptr @refusal)",
            "  ret ptr null",
            "failed:",
            "  call void @PyErr_SetString(ptr @tenon_MemoryError, ptr @failure)",
            "  ret ptr null",
            "raised:",
            "  ret ptr null",
            "}",
        ]
    )


def _constant(name: str, text: str) -> str:
    body = text.encode("ascii", "replace") + b"\0"
    escaped = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in body)
    return f'@{name} = internal constant [{len(body)} x i8] c"{escaped}"'


def _array(text: _Text, argument: str, parameter: Parameter) -> list[str]:
    """The words to pass for an array, after checks of its type, dtype, rank and flags."""
    rank = parameter.rank or 0
    kind = text.field(argument, builtin.TYPE)
    derived = text.let(f"call i32 @PyType_IsSubtype(ptr {kind}, ptr @tenon_array)")
    text.unless(f"icmp eq i32 {derived}, 0", "refused")
    dtype = text.field(argument, builtin.DTYPE)
    text.unless(f"icmp ne ptr {dtype}, @tenon_{parameter.dtype}", "refused")
    text.unless(f"icmp ne i32 {text.field(argument, builtin.RANK, 'i32')}, {rank}", "refused")
    flags = text.let(f"and i32 {text.field(argument, builtin.FLAGS, 'i32')}, {_CARRAY}")
    text.unless(f"icmp ne i32 {flags}, {_CARRAY}", "refused")
    shape, strides = text.field(argument, builtin.SHAPE), text.field(argument, builtin.STRIDES)
    sizes = [text.field(shape, 8 * d, "i64") for d in range(rank)]
    steps = [text.field(strides, 8 * d, "i64") for d in range(rank)]
    count = sizes[0]
    for size in sizes[1:]:
        count = text.let(f"mul i64 {count}, {size}")
    itemsize = str(np.dtype(parameter.dtype).itemsize)
    return ["null", "null", count, itemsize, text.field(argument, builtin.DATA), *sizes, *steps]


def _number(text: _Text, argument: str, dtype: str) -> str:
    """The number to pass for a Python object; an exception of the conversion is raised."""
    _, convert, kind, narrow = _SCALARS[dtype]
    value = text.let(f"call {kind} @{convert}(ptr {argument})")
    odd = f"icmp eq i64 {value}, -1" if kind == "i64" else f"fcmp oeq double {value}, -1.0"
    n = len(text.lines)
    text.do(f"br i1 {text.let(odd)}, label %ask{n}, label %got{n}")
    text.label(f"ask{n}")
    error = text.let(f"icmp ne ptr {text.let('call ptr @PyErr_Occurred()')}, null")
    text.do(f"br i1 {error}, label %raised, label %got{n}")
    text.label(f"got{n}")
    return text.let(narrow.format(value)) if narrow else value


def _work(signature: Signature, function: str) -> str:
    """``work(table, first, last)``: calls the kernel on a part of the range, with other arguments from the
    table, and sets the table's first word to -1 if it fails."""
    text, passed = _Text(), []
    for word, kind in enumerate(signature.words[:-2], 1):
        passed.append(f"{kind} {text.field('%table', 8 * word, kind)}")
    passed += ["i64 %first", "i64 %last"]
    return "\n".join(
        [
            "define void @work(ptr %table, i64 %first, i64 %last) {",
            "entry:",
            "  %result = alloca i64",
            "  %error = alloca ptr",
            *text.lines,
            f'  %status = call i32 @"{function}"(ptr %result, ptr %error, {", ".join(passed)})',
            "  %bad = icmp sgt i32 %status, 0",
            "  br i1 %bad, label %failed, label %done",
            "failed:",
            "  store i64 -1, ptr %table",
            "  br label %done",
            "done:",
            "  ret void",
            "}",
        ]
    )
