"""Compiled kernels on libgomp's team: the threads of oneDNN, of fused clusters and of optimizers.

A piece handed to a waiting Python thread costs some 50 us, and the interpreter lock changes hands for it; the
team starts in 2 us. Above all it stays awake: between two products of an eager training step lie kernels that
last longer than its threads wait for more work, and waking them took 0.1 ms of each product (1024 x 128 x 128
on two threads: 0.28 ms, and 0.17 with threads that had just done something).

A kernel's last two arguments are ``start`` and ``stop``. LLVM text of a few lines reads the others from a
table and calls the kernel as numba's own code would: an array is its owner twice (none), the number of
elements, the size of one, the address, the shape and the strides.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from tenon_cpu import threads
from tenon_cpu.jit import codegen_llvm
from tenon_cpu.jit.compile import Kernel
from tenon_cpu.onednn.primitives import address_of

_ARGUMENT = re.compile(r"(\w+)(?:\[([^\]]*)\])?")
_SCALARS = {"int64": "i64", "uint8": "i8", "float32": "float"}
_ARRAY = ("ptr", "ptr", "i64", "i64", "ptr")
_WORK = """
define void @work(ptr %table, i64 %first, i64 %last) {{
entry:
  %result = alloca ptr
  %error = alloca ptr
  {loads}
  %status = call i32 %function(ptr %result, ptr %error, {arguments}, i64 %first, i64 %last)
  ret void
}}
"""


def several() -> bool:
    """Whether there are threads to share work with."""
    return threads.usable() > 1 and codegen_llvm.available() and codegen_llvm.team_size() > 1


def run(kernel: Kernel, args: tuple[Any, ...], count: int) -> None:
    """``kernel(*args, start, stop)`` for parts of ``range(count)``, one for each thread."""
    entry, function, kinds = _shared(kernel)
    words: list[int] = [count, function]
    for kind, a in zip(kinds, args, strict=True):
        if kind is None:
            words += (0, 0, a.size, a.itemsize, address_of(a), *a.shape, *a.strides)
        else:
            words.append(int(np.asarray(a, kind).view(f"u{kind.itemsize}")))
    table = np.array(words, np.uint64)
    entry(address_of(table), codegen_llvm.ALL)


@functools.cache
def _shared(kernel: Kernel) -> tuple[codegen_llvm.Entry, int, tuple[Any, ...]]:
    """What starts the team, the address of the machine code, and the scalars' dtypes (None: an array)."""
    (compiled,) = kernel.ready().overloads.values()
    function = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    text, kinds = _text(kernel.signatures[0])
    return codegen_llvm.load(text), function, kinds


def _text(signature: str) -> tuple[str, tuple[Any, ...]]:
    """The module for kernels of ``signature``, and its scalars' dtypes, ``start`` and ``stop`` left out."""
    loads = ["%p1 = getelementptr i64, ptr %table, i64 1", "%function = load ptr, ptr %p1"]
    arguments: list[str] = []
    kinds: list[Any] = []
    found = _ARGUMENT.findall(signature[signature.index("(") + 1 : signature.rindex(")")])[:-2]
    for kind, axes in found:
        rank = axes.count(",") + 1
        for each in [*_ARRAY, *["i64"] * (2 * rank)] if axes else [_SCALARS[kind]]:
            word = len(arguments) + 2
            loads.append(f"%p{word} = getelementptr i64, ptr %table, i64 {word}")
            loads.append(f"%a{word} = load {each}, ptr %p{word}")
            arguments.append(f"{each} %a{word}")
        kinds.append(None if axes else np.dtype(kind))
    body = _WORK.format(loads="\n  ".join(loads), arguments=", ".join(arguments))
    return body + codegen_llvm.driver(None), tuple(kinds)
