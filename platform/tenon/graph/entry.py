"""One call of a program as generated code: conditions, copies in, the run, and what Python sees of it.

A train step of ten parameters takes some microseconds, so that the loops, lookups and calls around it would
cost more than it does. ``attempt(leaves)`` does all of it in one function whose names are the objects
themselves; ``MISS`` means that the conditions do not hold, or that memory has moved.
"""

from __future__ import annotations

import itertools
from sys import getrefcount
from typing import Any

from tenon.engine.quiet import IGNORE, enter, leave
from tenon.errors import DivergedError
from tenon.graph.guards import Names
from tenon.graph.program import KERNEL_ERRORS
from tenon.graph.recording import Argument, LeftGradient, Output
from tenon.graph.source_cache import forget_with, remember
from tenon.random import default_generator
from tenon.tensors.pytree import tree_unflatten
from tenon.tensors.tensor import Tensor

MISS = object()
_COUNT = itertools.count()


def conditions(replay: Any, names: Names) -> str:
    """All guards, and the check that memory has not moved, as one expression."""
    checks = [guard.source(names) for guard in replay.recording.guards]
    return " and ".join([c for c in checks if c != "True"] + [placed(replay, names)])


def placed(replay: Any, names: Names) -> str:
    """The check that parameters and state are still in the memory that the program is bound to."""
    return " and ".join(f"{names(t)}.raw is {names(raw)}" for t, raw in replay.places) or "True"


def attempt(replay: Any, lock: Any) -> Any:
    """``attempt(leaves)`` for a replay without a second half."""
    names = Names()
    lines = ["def attempt(leaves):", f"    with {names(lock)}:"]
    lines += [f"        if not ({conditions(replay, names)}):", f"            return {names(MISS)}"]
    lines += [f"        {line}" for line in _body(replay, names)]
    return _compiled(lines, names, "attempt")


def alike(leaves: list[Any]) -> Any:
    """``alike(args)``: whether they are of the same kind as ``leaves``, as a quick yes; None where only the
    whole key can tell: leaves that are no tensors, or need a gradient."""
    if not all(isinstance(a, Tensor) and not a._track for a in leaves):
        return None
    if len({id(a) for a in leaves}) < len(leaves):
        return None
    names = Names()
    given = [f"a{i}" for i in range(len(leaves))]
    checks = []
    for i, (name, leaf) in enumerate(zip(given, leaves, strict=True)):
        checks.append(f"{name}.__class__ is {names(leaf.__class__)} and {name}._track is False")
        checks.append(
            f"{name}._backend is {names(leaf._backend)} and (r := {name}.raw).dtype is"
            f" {names(leaf.raw.dtype)}"
        )
        checks.append(f"r.shape == {leaf.raw.shape!r}")
        checks += [f"{name} is not {other}" for other in given[:i]]
    lines = ["def alike(args):", f"    if len(args) != {len(leaves)}:", "        return False"]
    if leaves:
        lines.append(f"    {', '.join(given)}, = args")
    lines.append(f"    return {' and '.join(checks) or True}")
    return _compiled(lines, names, "alike")


def holds(recording: Any) -> Any:
    """``holds()``: all guards."""
    names = Names()
    checks = [c for c in (guard.source(names) for guard in recording.guards) if c != "True"]
    return _compiled(["def holds():", f"    return {' and '.join(checks) or True}"], names, "holds")


def body(replay: Any) -> Any:
    """``body(leaves)``: one run, unconditionally; the result, and the tensors made for the outputs."""
    names = Names()
    return _compiled(
        ["def body(leaves):", *(f"    {line}" for line in _body(replay, names, True))], names, "body"
    )


def _compiled(lines: list[str], names: Names, which: str) -> Any:
    source = "\n".join(lines) + "\n"
    filename = f"<tenon {which} {next(_COUNT)}>"
    space = names.space
    exec(compile(source, filename, "exec"), space)
    remember(filename, source)
    forget_with(space[which], filename)
    return space[which]


def _body(replay: Any, names: Names, keep: bool = False) -> list[str]:
    recording, program, held = replay.recording, replay.program, replay.program_gradients
    lines = []
    if held.tensors:
        checks = [
            f"{_leaf(left, names)}._grad is not {names(held.tensors)}[{place}]"
            for place, left in enumerate(held.lefts)
            if held.stays(place)
        ]
        counted = f"{names(sum)}({names(map)}({names(getrefcount)}, {names(held.watched)}))"
        checks.append(f"{counted} != {names(held.total)}[0]")
        lines.append(f"if {' or '.join(checks)}: {names(held.part)}(leaves)")
    for position, (buffer, get) in zip(replay.positions, replay.buffers, strict=True):
        found = f"leaves[{position}].raw" if position is not None else f"{names(get)}(leaves)"
        lines.append(f"{names(buffer)}[...] = {found}")
    numbers = ", ".join(reading.source(names) for reading in replay.getters)
    token = [names(enter), names(IGNORE), names(leave)]
    stop = []
    if recording.expects:  # then the call begins anew, and so do its random numbers
        stream = names(default_generator)
        lines.append(f"random = {stream}.get_state()")
        stop = [f"except {names(DivergedError)}:", f"    {stream}.set_state(random)", "    raise"]
    lines += [
        f"token = {token[0]}({token[1]})",
        "try:",
        f"    {names(program._run)}({numbers})",
        *stop,
        f"except {names(KERNEL_ERRORS)} as error:",
        f"    {names(program._explain)}(error)",
        "finally:",
        f"    {token[2]}(token)",
    ]
    for tensors in recording.counters:
        lines.append(f"n = {names(tensors[0])}.raw.item() + 1")
        lines += [f"{names(step)}.raw.fill(n)" for step in tensors]
    lines += [f"{names(tensor)}._version_counter[0] += 1" for tensor in replay.touched]
    for find, buffer in replay.changed:
        lines.append(f"t = {names(find)}(leaves); t.raw[...] = {names(buffer)}; t._counter()[0] += 1")
    for left, value in replay.gradients:
        given = names(value) if value.__class__ is not int else f"{names(held.tensors)}[{value}]"
        if value.__class__ is int and held.apart[value]:
            given = f"{names(Tensor._of)}({given}.raw.copy(), {names(replay.backend)})"
        lines.append(f"{_leaf(left, names)}._grad = {given}")
    lines += _returned(replay, names)
    lines += [f"{names(effect)}()" for effect in recording.after]
    result = _nested(recording, names)
    if keep:
        outputs = {each.index for each in recording.returned if each.__class__ is Output}
        return [*lines, f"return {result}, {{{', '.join(f'{i}: y{i}' for i in sorted(outputs))}}}"]
    return [*lines, f"return {result}"]


def _leaf(left: LeftGradient, names: Names) -> str:
    """The tensor whose ``grad`` is set."""
    return names(left.tensor) if left.tensor is not None else f"{names(left.leaf)}(leaves)"


def _returned(replay: Any, names: Names) -> list[str]:
    """Fresh tensors of the outputs: ``y<number>``."""
    lines = []
    made: set[int] = set()
    for each in replay.recording.returned:
        if each.__class__ is Output and each.index not in made:
            made.add(each.index)
            array = replay.output(each.index)
            lines.append(
                f"y{each.index} = {names(Tensor._of)}({names(array)}.copy(), {names(replay.backend)})"
            )
    return lines


def _nested(recording: Any, names: Names) -> str:
    """The nest that the function returns."""
    flat = []
    for each in recording.returned:
        if each.__class__ is Output:
            flat.append(f"y{each.index}")
        elif each.__class__ is Argument:
            flat.append(f"leaves[{each.position}]")
        else:
            flat.append(names(each))
    spec = recording.spec
    if spec is None or spec.is_leaf():
        return flat[0]
    if spec.type is tuple and all(child.is_leaf() for child in spec.children_specs):
        return f"({', '.join(flat)},)"
    return f"{names(tree_unflatten)}([{', '.join(flat)}], {names(spec)})"
