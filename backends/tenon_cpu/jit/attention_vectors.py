"""Emit LLVM text on vectors of floats: loads, exponentials, sums, and tiles of a product in registers."""

from __future__ import annotations

from tenon_cpu.jit.emission.functions import TYPES, Code, Index, constant


class Vectors(Code):
    """Code on vectors of ``lanes`` floats; a vector is the name of its register."""

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self.lanes = lanes
        self.vector = f"<{lanes} x float>"

    def address(self, base: str, *offsets: tuple[Index, Index]) -> str:
        """The address ``base`` plus the sum of the products of the pairs, in floats."""
        for a, b in offsets:
            offset = a * b if isinstance(a, int) and isinstance(b, int) else self.let(f"mul i64 {a}, {b}")
            base = base if offset == 0 else self.let(f"getelementptr float, ptr {base}, i64 {offset}")
        return base

    def read(self, at: str) -> str:
        """Load the vector at an address."""
        return self.let(f"load {self.vector}, ptr {at}, align 4")

    def write(self, value: str, at: str) -> None:
        """Store a vector at an address."""
        self.do(f"store {self.vector} {value}, ptr {at}, align 4")

    def binary(self, operation: str, a: str, b: str) -> str:
        """``a operation b``."""
        return self.let(f"{operation} {self.vector} {a}, {b}")

    def fused(self, a: str, b: str, c: str) -> str:
        """``a * b + c``, rounded once."""
        v = self.vector
        return self.let(f"call {v} @llvm.fma.v{self.lanes}f32({v} {a}, {v} {b}, {v} {c})")

    def splat(self, number: str, kind: str = "float") -> str:
        """``number`` in all lanes."""
        wide = f"<{self.lanes} x {kind}>"
        one = self.let(f"insertelement {wide} poison, {kind} {number}, i64 0")
        return self.let(f"shufflevector {wide} {one}, {wide} poison, <{self.lanes} x i32> zeroinitializer")

    def number(self, value: float) -> str:
        """A vector constant with ``value`` in all lanes."""
        return self.constant_of(constant(value, TYPES["float32"]))

    def constant_of(self, text: str) -> str:
        """A vector constant of a number in LLVM's notation."""
        return f"<{', '.join([f'float {text}'] * self.lanes)}>"

    def sum(self, value: str) -> str:
        """The sum of all lanes."""
        name = f"@llvm.vector.reduce.fadd.v{self.lanes}f32"
        return self.let(f"call reassoc float {name}(float 0.0, {self.vector} {value})")

    def track_finite(self, value: str) -> None:
        """Make ``%seen`` NaN if a lane is not finite."""
        odd = self.binary("fmul", value, "zeroinitializer")
        self.write(self.binary("fadd", self.read("%seen"), odd), "%seen")

    def exp(self, x: str) -> str:
        """``e ** x`` for ``x`` up to about 0: 0 below -87, NaN of NaN."""
        count = self.lanes
        magic = self.number(12582912.0)
        raised = self.fused(x, self.number(1.44269504088896341), magic)
        exponent = self.binary("fsub", raised, magic)
        rest = self.fused(exponent, self.number(-0.693359375), x)
        rest = self.fused(exponent, self.number(2.12194440e-4), rest)
        power = self.number(1.9875691500e-4)
        for k in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            power = self.fused(power, rest, self.number(k))
        power = self.fused(power, self.binary("fmul", rest, rest), rest)
        power = self.binary("fadd", power, self.number(1.0))
        bits = self.let(f"bitcast {self.vector} {raised} to <{count} x i32>")
        high = self.let(f"shl <{count} x i32> {bits}, <{', '.join(['i32 23'] * count)}>")
        one = self.let(f"add <{count} x i32> {high}, <{', '.join(['i32 1065353216'] * count)}>")
        power = self.binary("fmul", power, self.let(f"bitcast <{count} x i32> {one} to {self.vector}"))
        low = self.let(f"fcmp olt {self.vector} {x}, {self.number(-87.0)}")
        return self.let(f"select <{count} x i1> {low}, {self.vector} zeroinitializer, {self.vector} {power}")

    def lane_mask(self, index: str, limit: str) -> str:
        """The mask of the lanes of the vector at element ``index`` whose elements are below ``limit``."""
        count = self.lanes
        steps = f"<{', '.join(f'i64 {i}' for i in range(count))}>"
        indices = self.let(f"add <{count} x i64> {self.splat(index, 'i64')}, {steps}")
        return self.let(f"icmp slt <{count} x i64> {indices}, {self.splat(limit, 'i64')}")


def product(
    name: str, lanes: int, width: int, rows: int, a: tuple[Index, Index], b: int, c: Index, added: bool
) -> str:
    """Emit the function ``name``: ``c[row, j] = sum over k of a[row, k] * b[k, j]`` for ``tiles`` tiles.

    A tile has ``rows`` rows, and ``j`` runs over ``width`` vectors. ``a`` has the strides of its rows and of
    k, ``b`` that of k, ``c`` that of its rows; ``"%stride"`` is a parameter of the function. ``added`` adds
    to ``c``.
    """
    code = Vectors(lanes)
    v = code.vector
    with code.loop(0, "%tiles") as t:
        first = code.let(f"mul i64 {t}, {rows}")
        left, tile = code.address("%a", (first, a[0])), code.address("%c", (first, c))
        targets = [
            code.address(code.address(tile, (r, c)), (w, lanes)) for r in range(rows) for w in range(width)
        ]
        start = [code.read(at) if added else "zeroinitializer" for at in targets]
        before, n = code.block, code.loops + 1
        code.loops = n
        code.do(f"br label %k{n}")
        code.label(f"k{n}")
        phis = len(code.lines)
        names = [f"%acc{n}.{i}" for i in range(len(targets))]
        line = code.address("%b", (f"%k.at{n}", b))
        right = [code.read(code.address(line, (w, lanes))) for w in range(width)]
        column = code.address(left, (f"%k.at{n}", a[1]))
        sums: list[str] = []
        for r in range(rows):
            one = code.let(f"load float, ptr {code.address(column, (r, a[0]))}, align 4")
            factor = code.splat(one)
            sums += [code.fused(factor, right[w], names[r * width + w]) for w in range(width)]
        following = code.let(f"add i64 %k.at{n}, 1")
        more = code.let(f"icmp slt i64 {following}, %k")
        code.do(f"br i1 {more}, label %k{n}, label %sum{n}")
        code.lines[phis:phis] = [
            f"  %k.at{n} = phi i64 [0, %{before}], [{following}, %k{n}]",
            *(
                f"  {name} = phi {v} [{s}, %{before}], [{e}, %k{n}]"
                for name, s, e in zip(names, start, sums, strict=True)
            ),
        ]
        code.label(f"sum{n}")
        for value, at in zip(sums, targets, strict=True):
            code.write(value, at)
    body = code.function(
        name, "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %tiles, i64 %k, i64 %stride"
    )
    return body.replace("define void", "define internal void", 1).replace(
        '"no-builtins"', 'noinline "no-builtins"', 1
    )


def declarations(lanes: int) -> str:
    """Return the declarations of all external functions."""
    v = f"<{lanes} x float>"
    return f"""
declare {v} @llvm.fma.v{lanes}f32({v}, {v}, {v})
declare {v} @llvm.maxnum.v{lanes}f32({v}, {v})
declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {v})
declare float @llvm.vector.reduce.fmax.v{lanes}f32({v})
declare {v} @llvm.masked.load.v{lanes}f32.p0(ptr, i32, <{lanes} x i1>, {v})
declare i64 @llvm.smin.i64(i64, i64)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
"""
