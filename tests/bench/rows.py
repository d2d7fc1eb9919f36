"""The rows of ``cpu.py``: which program in which mode, the ways to run it that are compared, and the bars."""

from dataclasses import dataclass, field

from programs import PROGRAMS, TINY
from programs.more import MORE, TINY_MORE, Calls

ALL = PROGRAMS | MORE
SMALLEST = TINY | TINY_MORE
#: Programs of convolutions, which PyTorch may prefer with channels last.
IMAGES = ("cnn", "resnet")
#: Programs without an optimizer.
PARTS = ("attention", "depthwise", "vocabulary", "chain")
SHORT = {
    "note": "the Modules note's loop",
    "mlp": "MLP",
    "cnn": "CNN",
    "gpt": "GPT",
    "resnet": "ResNet-18",
    "recurrent": "LSTM",
    "adamw": "AdamW, 100 x 100,000",
    "add": "4x4 add",
    "add-taped": "4x4 add, taped",
    "matmul": "4x4 matmul",
    "matmul-taped": "4x4 matmul, taped",
    "attention": "attention, T=512",
    "depthwise": "depthwise convolution",
    "vocabulary": "32,000 classes",
    "chain": "norm, GELU, dropout",
}
TORCH = {
    "train": ("compiled", "compiled plain optimizer"),
    "infer": ("compiled", "compiled frozen"),
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    program: str
    mode: str = "train"
    #: Least ratios that are acceptable: eager, compiled.
    bars: tuple = (None, None)
    sizes: dict = field(default_factory=dict)
    half: bool = False
    #: More than this many threads are of no use to it.
    threads: int = 64
    #: Nothing of it is worth compiling: an op, or an optimizer alone.
    only_eager: bool = False
    tolerance: float = 1e-4
    #: JAX has this program too.
    jax: bool = False

    def what(self):
        """In words."""
        words = SHORT.get(self.program, self.program)
        if self.mode == "infer":
            words += f", inference, batch {self.sizes['batch']}"
        return words + (", bfloat16" if self.half else "")

    @property
    def repeats(self):
        """Calls in what is timed as one."""
        return Calls.COUNT if self.program in ("add", "add-taped", "matmul", "matmul-taped") else 1

    @property
    def has_floor(self):
        """Whether work worth counting is done."""
        return self.repeats == 1 and self.program != "note"

    def tiny_sizes(self):
        """Sizes that take no time."""
        tiny = dict(SMALLEST.get(self.program, {}))
        return tiny | ({"batch": self.sizes["batch"]} if self.mode == "infer" else {})

    def contestants(self, eager_only):
        """``(library, way)`` of all that is built."""
        ways = [("tenon", "eager"), ("torch", "eager")]
        if self.program in IMAGES:
            ways.append(("torch", "eager channels last"))
        if self.program == "gpt":
            ways += [("tenon", "eager sdpa"), ("torch", "eager sdpa")]
        if not eager_only and not self.only_eager:
            ways += [("tenon", "compiled"), *(("torch", way) for way in TORCH[self.mode])]
            if self.program == "gpt":
                ways += [("tenon", "compiled sdpa"), ("torch", "compiled sdpa")]
            if self.program in PARTS:
                ways.remove(("torch", "compiled plain optimizer"))
            if self.jax:
                ways.append(("jax", "jit"))
        return ways

    def eager_pair(self):
        """Ours and the others: of both the best counts."""
        return ("tenon eager", "tenon eager sdpa"), (
            "torch eager",
            "torch eager channels last",
            "torch eager sdpa",
        )

    def compiled_pair(self):
        """The same for compiled programs: the best of all of PyTorch's ways."""
        return ("tenon compiled", "tenon compiled sdpa"), tuple(
            f"torch {way}"
            for way in ("eager", "eager channels last", "eager sdpa", "compiled sdpa", *TORCH[self.mode])
        )

    def jax_pair(self):
        """The same against JAX."""
        return ("tenon compiled", "tenon compiled sdpa"), ("jax jit",)


LIST = [
    Row("a", "note", bars=(3.0, 20.0), threads=1),
    Row("b", "mlp", bars=(2.5, 4.5), jax=True),
    Row("c", "cnn", bars=(1.5, 2.4), jax=True),
    Row("d", "gpt", bars=(1.3, 2.6), jax=True),
    Row("e", "resnet", bars=(1.1, 1.5), tolerance=2e-3),
    Row("f", "recurrent", bars=(0.9, 1.1)),
    *(
        Row(f"g-{name}-{batch}", program, "infer", (1.2, 1.5), {"batch": batch}, tolerance=1e-3)
        for name, program in (("b", "mlp"), ("c", "cnn"), ("d", "gpt"), ("e", "resnet"))
        for batch in (1, 32)
    ),
    Row("h", "adamw", bars=(1.5, None), only_eager=True),
    Row("b16", "mlp", bars=(None, 1.1), half=True, tolerance=3e-2),
    Row("d16", "gpt", bars=(None, 1.1), half=True, tolerance=3e-2),
    Row("x-add", "add", threads=1, only_eager=True),
    Row("x-add-taped", "add-taped", threads=1, only_eager=True),
    Row("x-matmul", "matmul", threads=1, only_eager=True),
    Row("x-matmul-taped", "matmul-taped", threads=1, only_eager=True),
    Row("x-attention", "attention", bars=(1.0, 1.0)),
    Row("x-depthwise", "depthwise", bars=(1.0, 1.0)),
    Row("x-vocabulary", "vocabulary", bars=(1.0, 1.0)),
    Row("x-chain", "chain", bars=(1.0, 1.0), tolerance=3e-2),
    Row("latency", "gpt"),
]
ROWS = {row.key: row for row in LIST}


def chosen(only):
    """The rows whose names begin with one of those in ``only``; all if it is None. KeyError: a name that fits none."""
    if only is None:
        return LIST
    found = []
    for name in only.split(","):
        # "b" is the row of that name alone, "g" all rows of inference.
        rows = [ROWS[name]] if name in ROWS else [row for row in LIST if row.key.startswith(name + "-")]
        if not rows:
            raise KeyError(name)
        found += [row for row in rows if row not in found]
    return found
