"""Write the page of ops that rules get as ``f``: ``python docs/build_ops.py``; a test compares it."""

from __future__ import annotations

import inspect
from collections import defaultdict
from pathlib import Path

from tenon import ops
from tenon.extend import Kind, Op

OUT = Path(__file__).parent / "ops.md"

HEAD = """# What `f` offers

A rule of an optimizer (`update`), a decomposition or a derivative of an op (`decompose`, `vjp_x`) gets `f`, and
computes by it: `f.sum(x, axes=(0,), keepdims=True)`. `f` has every op below, also those of plugins. Operands are
positional, attributes are keywords. The values are arrays of the backend, tensors, or descriptions of them where a
program is recorded or a shape inferred, so a rule works on every backend, in compiled programs and in exported ones,
as long as it uses `f`, operators (`x + y`, `-x`, `x > y`), `x.shape` and `x.dtype`: not NumPy, not `if` on values, and
no assignment into an array.

The same ops on tensors are `tenon.ops.NAME`: `tenon.ops.sum(tensor, axes=(0,))`. Their dtypes follow PyTorch's rules;
axes may be negative, dtypes are NumPy's (`dtype=x.dtype`), shapes are tuples. An op of your own comes by the hook
`tenon_ops` ([hooks](guide/hooks.md#tenon_ops)), or is composed of these.

Written by `python docs/build_ops.py`.
"""  # noqa: E501
TITLES = {
    Kind.CREATE: "Creation",
    Kind.ELEMENTWISE: "Elementwise",
    Kind.REDUCE: "Reductions",
    Kind.MOVE: "Movement",
    Kind.MEMORY: "Dtype, device and memory",
    Kind.INDEX: "Indexing",
    Kind.CONTRACT: "Products",
    Kind.CONVOLVE: "Convolutions",
}


#: Parameters that callers of an op do not pass.
_INTERNAL = ("xp", "f", "out", "args", "attrs")


def attributes_of(op: Op) -> str:
    """The keywords of ``op``, with their defaults."""
    function = next(getattr(op, each) for each in ("forward", "decompose", "transfer") if hasattr(op, each))
    operands = {name.lstrip("*") for name in op.inputs}
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if (
            name in operands
            or name in ("xp", "f", "out", "args", "attrs")
            or parameter.kind is parameter.VAR_KEYWORD
        ):
            continue
        default = parameter.default
        names.append(f"`{name}`" if default is parameter.empty else f"`{name}={default!r}`")
    return ", ".join(names)


def row(name: str, op: Op) -> str:
    """The line of the table for ``op``."""
    text = inspect.cleandoc(op.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
    cells = (f"`{name}`", ", ".join(f"`{each}`" for each in op.inputs), attributes_of(op), text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page() -> str:
    """The text of the page: the ops that tenon itself defines."""
    found = defaultdict(list)
    for name in sorted(n for n in dir(ops) if not n.startswith("_")):
        op = getattr(ops, name)
        if isinstance(op, Op) and type(op).__module__.startswith("tenon."):
            found[op.kind].append(row(name, op))
    order = [*TITLES, *sorted(found.keys() - TITLES.keys(), key=lambda kind: kind.name)]
    parts = [HEAD]
    for kind in (each for each in order if each in found):
        title = TITLES.get(kind, kind.name.capitalize())
        parts += [f"\n## {title}\n", "| op | operands | attributes | |", "|---|---|---|---|", *found[kind]]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    OUT.write_text(page(), encoding="utf-8")
