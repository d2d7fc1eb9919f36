"""Write the files of a program: ``model.c``, ``model.h``, kernels, weights, test, Makefile."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tenon.extend import SizeGuard
from tenon_target_c.library import kernels_source, mentioned
from tenon_target_c.memory import lay_out
from tenon_target_c.program import Program, Step
from tenon_target_c.sizes import Sizes, guard_text
from tenon_target_c.values import Buffer, Pointer, View

_TEMPLATES = Path(__file__).parent / "templates"
#: Sizes below this are compared as Python would.
_LARGEST = 1 << 30
_TYPES = {
    "float32": "MODEL_FLOAT32", "float64": "MODEL_FLOAT64", "int64": "MODEL_INT64", "int32": "MODEL_INT32",
    "int16": "MODEL_INT16", "int8": "MODEL_INT8", "uint8": "MODEL_UINT8", "bool": "MODEL_BOOL",
}  # fmt: skip
_PREFIXES = {"arena": "a", "weight": "w", "state": "s"}


@dataclass(frozen=True, slots=True)
class Names:
    """The public names of a program: those of its arguments and results."""

    title: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    #: The numbers that a run reads: name, first value, and what each run adds.
    numbers: Sequence[tuple[str, float, float]] = ()
    #: The sizes that may change.
    sizes: Sizes | None = None


def render(program: Program, names: Names) -> dict[str, bytes]:
    """Return the files of a program by name, except for the test vectors."""
    sizes = lay_out(program)
    used = [s.function for s in program.steps] + [k for text in program.functions for k in mentioned(text)]
    kernels, header = kernels_source(dict.fromkeys(used))
    training = program.graph.writes or names.numbers
    fields = _fields(program, names, sizes)
    fields["training"] = _filled("training.c", fields) if training else ""
    model = _filled("model.c", fields)
    fields["training"] = _filled("training.h", fields) if training else ""
    return {
        "model.h": _filled("model.h", fields).encode(),
        "model.c": model.encode(),
        "kernels.c": kernels.encode(),
        "kernels.h": header.encode(),
        "weights.bin": weights_file(program, sizes),
        "Makefile": (_TEMPLATES / "Makefile").read_bytes(),
    }


def test_source(absolute: Sequence[float], relative: float) -> bytes:
    """Return ``test_model.c`` with the absolute tolerance of each output and the relative one of floats."""
    text = "".join(f"{t!r}, " for t in absolute)
    return _filled("test_model.c", {"absolute": text, "relative": repr(relative)}).encode()


def _filled(template: str, fields: Mapping[str, str]) -> str:
    text = (_TEMPLATES / template).read_text()
    return re.sub(r"@(\w+)@", lambda m: fields[m.group(1)], text)


def _fields(program: Program, names: Names, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    graph = program.graph
    known = {n.label: program.views[n.out()] for n in graph.inputs if n.value is None}
    inputs = [known[name] for name in program.arguments]
    outputs = [program.views[r] for r in graph.outputs]
    return {
        "title": names.title.replace("*/", "* /"),
        "guard": "MODEL_H",
        "inputs": str(len(inputs)),
        "outputs": str(len(outputs)),
        "numbers": str(len(names.numbers)),
        "rank": str(max([8, *(len(view.shape) for view in (*inputs, *outputs))])),
        "memory": "\n".join(
            f"static {ctype} {_PREFIXES[kind]}_{ctype}[{count}] MODEL_ALIGNED;"
            for kind, by_type in sizes.items()
            for ctype, count in by_type.items()
            if count
        ),
        "input_names": _strings(names.inputs),
        "output_names": _strings(names.outputs),
        "input_specs": "".join(_spec(v) for v in inputs),
        "output_specs": "".join(_spec(v) for v in outputs),
        "parts": "".join(
            f"{{{_PREFIXES[kind]}_{ctype}, sizeof {_PREFIXES[kind]}_{ctype}}}, "
            for kind in ("weight", "state")
            for ctype, count in sizes[kind].items()
            if count
        ),
        "functions": "\n".join(text.replace("@", name, 1) for text, name in program.functions.items()),
        "arguments": _arguments(program),
        "scalars": "\n".join(
            f"    const double {line.replace('numbers[', 'model_numbers[')};" for line in program.scalar_lines
        ),
        "conditions": "\n".join(
            f"    if (!({c.replace('numbers[', 'model_numbers[')}))\n        return MODEL_BAD_NUMBER;"
            for c in program.conditions
        ),
        "steps": "\n".join(_step(s) for s in program.steps),
        "increments": "\n".join(
            f"    model_numbers[{i}] += {float(step)!r};"
            for i, (_, _, step) in enumerate(names.numbers)
            if step
        ),
        "sizes": _sizes(names.sizes) if names.sizes is not None else "",
        "size_guards": _size_guards(names.sizes) if names.sizes else "",
        "ranges": _ranges(names.sizes) if names.sizes is not None else "",
        "symbols": "".join(f"static long n_{name};\n" for name in names.sizes.ranges) if names.sizes else "",
        "number_names": _strings([n for n, _, _ in names.numbers]),
        "number_values": "".join(f"{float(v)!r}, " for _, v, _ in names.numbers),
    }


def _sizes(sizes: Sizes) -> str:
    """Return the lines that read the sizes of a run and set the shapes that follow from them."""
    lines = []
    for name, (position, axis) in sizes.places.items():
        least, most = sizes.ranges[name]
        given = f"inputs[{position}]"
        lines += [
            f"    n_{name} = {given}.rank > {axis} ? {given}.shape[{axis}] : {most};",
            f"    if (n_{name} < {least} || n_{name} > {most})",
            f"        n_{name} = {most};",
        ]
    for kind, changed in (("inputs", sizes.inputs), ("outputs", sizes.outputs)):
        lines += [f"    sized_{kind}[{p}].shape[{a}] = {text};" for (p, a), text in changed.items()]
    return "\n".join(lines)


def _size_guards(sizes: Sizes) -> str:
    """Return the lines that refuse sizes at which Python would branch otherwise, before other checks."""
    if not sizes.guards:
        return ""
    reads, known = [], []
    for name, (position, axis) in sizes.places.items():
        given, most = f"inputs[{position}]", sizes.ranges[name][1]
        reads.append(f"        const long n_{name} = {given}.rank > {axis} ? {given}.shape[{axis}] : {most};")
        known.append(f"n_{name} >= 0 && n_{name} < {_LARGEST}")
    checks = (line for guard in sizes.guards for line in _size_guard(guard, " && ".join(known)))
    return "\n".join(["    {", *reads, *(f"        {line}" for line in checks), "    }"])


def _size_guard(guard: SizeGuard, known: str) -> list[str]:
    """Return the lines that check one guard, where the sizes are ``known``: small enough to compute with."""
    text = f"; Python decided by {guard.condition} at {guard.place}, which was {guard.answer}"
    symbols = sorted(guard.symbols)
    sizes = ", ".join(f"{name} = %ld" for name in symbols)
    values = ", ".join(f"n_{name}" for name in symbols)
    return [
        f"if ({known} && !({guard_text(guard)})) {{",
        "    fail(MODEL_BAD_SHAPE);",
        f'    append("%s, and is not for {sizes}", "{_literal(text)}", {values});',
        "    return MODEL_BAD_SHAPE;",
        "}",
    ]


def _literal(text: str) -> str:
    """Return the inside of a C string literal, with "_" for characters that C may read in another way."""
    return re.sub(r"[^\w .,;:=<>+*/%()\[\]-]", "_", text, flags=re.ASCII)


def _ranges(sizes: Sizes) -> str:
    """Return the text about the sizes that may change, for messages about shapes."""
    return "".join(f"; {name} is {least} to {most}" for name, (least, most) in sizes.ranges.items())


def _strings(texts: Sequence[str]) -> str:
    return "".join('"' + re.sub(r"[^\w .:\[\]-]", "_", t) + '", ' for t in texts)


def _spec(view: View) -> str:
    shape = ", ".join(map(str, view.shape)) or "0"
    return f"{{NULL, {_TYPES[view.dtype.name]}, {len(view.shape)}, {{{shape}}}}}, "


def _arguments(program: Program) -> str:
    """Return the lines that declare the caller's memory of arguments that steps use."""
    lines: dict[str, None] = {}
    used = {"input": False, "output": False}
    for step in program.steps:
        for a in step.args:
            if isinstance(a, Pointer) and a.view.buffer.kind in used:
                b = a.view.buffer
                used[b.kind] = True
                const = "const " if b.kind == "input" else ""
                where = f"{b.kind}s[{b.offset}].data"
                cast = f"(const {b.ctype} *)" if const else f"({b.ctype} *)"
                lines[f"    {const}{b.ctype} *const {b.kind}{b.offset} = {cast}{where};"] = None
    unused = [f"    (void){kind}s;" for kind, is_used in used.items() if not is_used]
    return "\n".join([*lines, *unused])


def _step(step: Step) -> str:
    text = f"{step.function}({', '.join(_argument(a) for a in step.args)})"
    return f"    if ({text})\n        return {step.error};" if step.error else f"    {text};"


def _argument(value: object) -> str:
    if not isinstance(value, Pointer):
        return str(value).replace("numbers[", "model_numbers[")
    view = value.view
    name, start = base_name(view.buffer), 0
    if view.buffer.kind not in ("input", "output"):
        start = view.buffer.offset
    if value.offset:
        return f"{name} + {start} + {value.offset}"
    return f"{name} + {start + view.offset}" if start + view.offset else name


def base_name(buffer: Buffer) -> str:
    """Return the C name of the memory that contains ``buffer``."""
    if buffer.kind in ("input", "output"):
        return f"{buffer.kind}{buffer.offset}"
    return f"{_PREFIXES[buffer.kind]}_{buffer.ctype}"


def weights_file(program: Program, sizes: Mapping[str, Mapping[str, int]]) -> bytes:
    """Return the weights: a header (a name, the size, a checksum), then the memory of each type."""
    chunks = []
    buffers = program.buffers()
    for kind in ("weight", "state"):
        for ctype, count in sizes[kind].items():
            own = [b for b in buffers if b.kind == kind and b.ctype == ctype]
            if not count:
                continue
            memory = np.zeros(count, own[0].memory.dtype if own[0].memory.dtype != bool else np.uint8)
            for b in own:
                memory[b.offset : b.offset + b.count] = b.memory
            chunks.append(memory.tobytes())
    body = b"".join(chunks)
    return b"tenonc1\n" + len(body).to_bytes(8, "little") + zlib.crc32(body).to_bytes(8, "little") + body
