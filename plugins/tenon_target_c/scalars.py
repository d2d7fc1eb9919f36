"""Numbers that are computed for every run: learning rates, step counts, bias corrections."""

from __future__ import annotations

from tenon.extend import Guard, Node, errors
from tenon_target_c.program import Program, double_text, scalar_text

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_CALLS = {
    "pow": "pow", "sqrt": "sqrt", "abs": "fabs", "max": "fmax", "min": "fmin", "neg": "-",
    "mod": "k_remainder",
}  # fmt: skip


def scalar_line(program: Program, node: Node) -> None:
    """Add the line that computes a scalar node; equal ones are computed once."""
    if node.function == "input":
        position = sum(1 for t in program.scalars.values() if t.startswith("numbers["))
        program.scalars[node.out()] = f"numbers[{position}]"
        return
    args = [scalar_text(program, a) for a in node.args]
    if node.function in OPERATORS and len(args) == 2:
        text = f" {OPERATORS[node.function]} ".join(args)
    elif node.function == "floordiv":
        text = f"floor({args[0]} / {args[1]})"
    elif node.function in _CALLS:
        text = f"{_CALLS[node.function]}({', '.join(args)})"
    else:
        raise errors.GraphError(
            f"the target c does not support the function {node.function!r} of {len(args)} numbers."
        )
    for line in program.scalar_lines:
        name, _, value = line.partition(" = ")
        if value == text:
            program.scalars[node.out()] = name
            return
    name = f"number{len(program.scalar_lines)}"
    program.scalar_lines.append(f"{name} = {text}")
    program.scalars[node.out()] = name


COMPARISONS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def condition(program: Program, guard: Guard) -> str:
    """Return a guard on a scalar as a C condition."""
    value = scalar_text(program, guard.value)
    if guard.question in COMPARISONS:
        other = scalar_text(program, guard.other)
        return f"({value} {COMPARISONS[guard.question]} {other}) == {int(guard.answer)}"
    if guard.question == "bool":
        return f"({value} != 0.0) == {int(guard.answer)}"
    if guard.question == "float":
        return f"{value} == {double_text(guard.answer)}"
    return f"trunc({value}) == {double_text(guard.answer)}"
