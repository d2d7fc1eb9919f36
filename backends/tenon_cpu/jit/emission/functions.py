"""Emit the text of LLVM functions: types, values, memory and loops.

Generated kernels are written in LLVM's intermediate language, not in Python for numba: one compiles in about
20 ms instead of a second, and the text can state that pointers do not overlap, and which sums may be
reordered. ``emission/formulas.py`` emits the formulas of ops, ``emission/pointwise.py`` the loops around
them, ``compiler/llvm.py`` compiles.

Floats of 16 bits are converted to float32 when loaded, and back when stored.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: An index: the name of an i64 value, or a number.
Index = int | str


class Type(NamedTuple):
    """A dtype: its LLVM types in memory and in registers, and NumPy's letter for its kind."""

    name: str
    mem: str
    reg: str
    kind: str
    bits: int

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.bits // 8


def _integer(name: str, kind: str, bits: int) -> Type:
    return Type(name, f"i{bits}", f"i{bits}", kind, bits)


TYPES: dict[str, Type] = {
    "float32": Type("float32", "float", "float", "f", 32),
    "float64": Type("float64", "double", "double", "f", 64),
    "float16": Type("float16", "half", "float", "f", 16),
    "bfloat16": Type("bfloat16", "i16", "float", "f", 16),
    "bool": Type("bool", "i8", "i1", "b", 8),
    **{f"int{n}": _integer(f"int{n}", "i", n) for n in (8, 16, 32, 64)},
    **{f"uint{n}": _integer(f"uint{n}", "u", n) for n in (8, 16, 32, 64)},
}
INT, REAL, BOOL = TYPES["int64"], TYPES["float64"], TYPES["bool"]


def type_of(dtype: npt.DTypeLike) -> Type | None:
    """The type of a NumPy dtype; None if there is no code for it."""
    return TYPES.get(np.dtype(dtype).name)


class Val(NamedTuple):
    """A value in a register, or a constant."""

    text: str
    type: Type


#: An operand of a formula: a value, or a Python number that takes the type of the other operand.
Operand = Val | float


def constant(value: float, type: Type) -> str:
    """``value`` as LLVM spells a constant of ``type``."""
    if type.reg == "float":
        with np.errstate(all="ignore"):
            value = float(np.float32(value))
    if type.kind == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    if type.kind == "b":
        return "true" if value else "false"
    return str(int(value))


class Code:
    """The body of one function, line by line."""

    def __init__(self, contract: bool = True, fma: bool = True) -> None:
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.declared: dict[str, str] = {}
        self.loops = 0
        self.block = "entry"
        self.flags = "contract " if contract else ""
        self.fma = fma
        self._count = 0

    def let(self, text: str) -> str:
        """Append the instruction ``text``; return the name of its result."""
        self._count += 1
        self.lines.append(f"  %t{self._count} = {text}")
        return f"%t{self._count}"

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Begin the block ``name``; the caller emits the jump to it."""
        self.lines.append(f"{name}:")
        self.block = name

    def call(self, name: str, reg: str, *args: Val) -> str:
        """Call an external function that returns ``reg``; return the name of the result."""
        self.declared[name] = f"declare {reg} @{name}({', '.join(a.type.reg for a in args)})"
        return self.let(f"call {reg} @{name}({', '.join(f'{a.type.reg} {a.text}' for a in args)})")

    # --- integers, for indices ---

    def plus(self, a: Index, b: Index) -> Index:
        """The sum of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        return a if b == 0 else self.let(f"add nsw i64 {a}, {b}")

    def times(self, a: Index, b: int) -> Index:
        """The product of an index and a number."""
        if isinstance(a, int):
            return a * b
        return 0 if b == 0 else a if b == 1 else self.let(f"mul nsw i64 {a}, {b}")

    def least(self, a: Index, b: Index) -> Index:
        """The smaller of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        c = self.let(f"icmp slt i64 {a}, {b}")
        return self.let(f"select i1 {c}, i64 {a}, i64 {b}")

    # --- memory ---

    def at(self, pointer: str, type: Type, index: Index) -> str:
        """The address of an element of the array at ``pointer``."""
        return (
            pointer
            if index == 0
            else self.let(f"getelementptr inbounds {type.mem}, ptr {pointer}, i64 {index}")
        )

    def load(self, pointer: str, type: Type, index: Index = 0) -> Val:
        """Load an element of the array at ``pointer``."""
        text = self.let(f"load {type.mem}, ptr {self.at(pointer, type, index)}")
        if type.kind == "b":
            text = self.let(f"icmp ne i8 {text}, 0")
        elif type.name == "float16":
            text = self.let(f"fpext half {text} to float")
        elif type.name == "bfloat16":
            text = self.let(f"zext i16 {text} to i32")
            text = self.let(f"shl i32 {text}, 16")
            text = self.let(f"bitcast i32 {text} to float")
        return Val(text, type)

    def store(self, value: Val, pointer: str, index: Index = 0) -> None:
        """Store a value of the array's type as an element of it."""
        text, type = value
        if type.kind == "b":
            text = self.let(f"zext i1 {text} to i8")
        elif type.name == "float16":
            text = self.let(f"fptrunc float {text} to half")
        elif type.name == "bfloat16":
            text = self._to_bfloat16(text)
        self.do(f"store {type.mem} {text}, ptr {self.at(pointer, type, index)}")

    def _to_bfloat16(self, text: str) -> str:
        bits = self.let(f"bitcast float {text} to i32")
        high = self.let(f"lshr i32 {bits}, 16")
        odd = self.let(f"and i32 {high}, 1")
        bias = self.let(f"add i32 {odd}, 32767")
        rounded = self.let(f"lshr i32 {self.let(f'add i32 {bits}, {bias}')}, 16")
        quiet = self.let(f"or i32 {high}, 64")
        nan = self.let(f"fcmp uno float {text}, {text}")
        return self.let(f"trunc i32 {self.let(f'select i1 {nan}, i32 {quiet}, i32 {rounded}')} to i16")

    def variable(self, type: Type, count: int = 1) -> str:
        """Allocate memory on the function's stack: an accumulator, or a temporary row."""
        self._count += 1
        name = f"%v{self._count}"
        shape = type.mem if count == 1 else f"[{count} x {type.mem}]"
        self.entry.append(f"  {name} = alloca {shape}, align 64")
        return name

    # --- control ---

    @contextlib.contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1) -> Iterator[str]:
        """``for i in range(start, stop, step)``; yields the name of ``i``."""
        self.loops += 1
        n = self.loops
        if not (isinstance(start, int) and isinstance(stop, int)) or start >= stop:
            some = self.let(f"icmp slt i64 {start}, {stop}")
            self.do(f"br i1 {some}, label %enter{n}, label %done{n}")
            self.label(f"enter{n}")
        before = self.block
        self.do(f"br label %loop{n}")
        self.label(f"loop{n}")
        phi = len(self.lines)
        self.lines.append("")
        yield f"%i{n}"
        following = self.let(f"add nsw i64 %i{n}, {step}")
        more = self.let(f"icmp slt i64 {following}, {stop}")
        self.lines[phi] = f"  %i{n} = phi i64 [{start}, %{before}], [{following}, %{self.block}]"
        self.do(f"br i1 {more}, label %loop{n}, label %done{n}")
        self.label(f"done{n}")

    def function(self, name: str, parameters: str) -> str:
        """The text of the whole function, which returns nothing."""
        # An output may be the same array as an input. If LLVM replaced a loop by a call of memset, it would
        # overwrite elements of the input that the next loop reads, so such replacements are turned off.
        lines = [
            f'define void @{name}({parameters}) "no-builtins" {{',
            "entry:",
            *self.entry,
            *self.lines,
            "  ret void",
            "}",
        ]
        return "\n".join(lines)


#: The parameters for the range of work of a call.
SPAN = ("i64 %first", "i64 %last")


def reading(
    body: str, kinds: Sequence[str], first: int = 0, name: str = "work", span: Sequence[str] = SPAN
) -> str:
    """The text of ``name(table, *span)``, which calls ``body`` with the table's words from ``first`` on, of
    these LLVM types (``kinds``), and with ``span``."""
    code, passed = Code(), []
    for word, kind in enumerate(kinds, first):
        at = code.at("%table", INT, word)
        passed.append(f"{kind} {code.let(f'load {kind}, ptr {at}')}")
    code.do(f"call void @{body}({', '.join([*passed, *span])})")
    return code.function(name, ", ".join(["ptr %table", *span]))
