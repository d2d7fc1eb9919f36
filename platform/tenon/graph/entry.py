"""One call of a program as generated code: guards, copies of arguments, the run, and Python's side effects.

A training step of ten parameters takes some microseconds, less than loops, lookups and calls around it would.
So one function ``attempt(leaves)`` is generated, whose global variables are the objects that it uses. It
returns ``MISS`` if a guard fails or if memory has moved.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from tenon.engine import pending_copies
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.engine.types import Nested
from tenon.errors import DivergedError
from tenon.graph.guards import Names
from tenon.graph.program import KERNEL_ERRORS
from tenon.graph.recording import Argument, FinalGradient, Leaves, Output, Recording
from tenon.graph.source_cache import forget_with, remember
from tenon.random import default_generator
from tenon.tensors.pytree import tree_unflatten
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.graph.replay import Replay

#: Returned by ``attempt`` if the recording is not valid for the call.
MISS = object()
_COUNT = itertools.count()


def conditions(replay: Replay, names: Names) -> str:
    """Return all guards, and the check that memory has not moved, as one expression."""
    checks = [guard.source(names) for guard in replay.recording.guards]
    return " and ".join([c for c in checks if c != "True"] + [placed(replay, names)])


def placed(replay: Replay, names: Names) -> str:
    """Return the check that parameters and state are in the memory to which the program is bound."""
    return " and ".join(f"{names(t)}.raw is {names(raw)}" for t, raw in replay.places) or "True"


def attempt(replay: Replay, lock: threading.Lock) -> Callable[[Leaves], Nested]:
    """Generate ``attempt(leaves)``: the result of one call, or MISS; for a replay without a backward
    graph."""
    names = Names()
    lines = ["def attempt(leaves):", f"    with {names(lock)}:"]
    lines += [f"        if not ({conditions(replay, names)}):", f"            return {names(MISS)}"]
    lines += [f"        {line}" for line in _body(replay, names)]
    return _compiled(lines, names, "attempt")


def alike(leaves: Leaves) -> Callable[[tuple[Nested, ...]], bool] | None:
    """Generate ``alike(args)``: whether tensors have the types, dtypes and shapes of ``leaves``.

    None for leaves that are not tensors or require a gradient, which only the whole key can distinguish.
    """
    if not all(isinstance(a, Tensor) and not a._track for a in leaves):
        return None
    if len({id(a) for a in leaves}) < len(leaves):
        return None
    names = Names()
    arguments = [f"a{i}" for i in range(len(leaves))]
    checks = []
    for i, (name, leaf) in enumerate(zip(arguments, leaves, strict=True)):
        checks.append(f"{name}.__class__ is {names(leaf.__class__)} and {name}._track is False")
        checks.append(
            f"{name}._backend is {names(leaf._backend)} and (r := {name}.raw).dtype is"
            f" {names(leaf.raw.dtype)}"
        )
        checks.append(f"r.shape == {leaf.raw.shape!r}")
        checks += [f"{name} is not {other}" for other in arguments[:i]]
    lines = ["def alike(args):", f"    if len(args) != {len(leaves)}:", "        return False"]
    if leaves:
        lines.append(f"    {', '.join(arguments)}, = args")
    lines.append(f"    return {' and '.join(checks) or True}")
    return _compiled(lines, names, "alike")


def holds(recording: Recording) -> Callable[[], bool]:
    """Generate ``holds()``: whether all guards hold."""
    names = Names()
    checks = [c for c in (guard.source(names) for guard in recording.guards) if c != "True"]
    return _compiled(["def holds():", f"    return {' and '.join(checks) or True}"], names, "holds")


def body(replay: Replay) -> Callable[[Leaves], tuple[Nested, dict[int, Tensor]]]:
    """Generate ``body(leaves)``: an unconditional run, which returns the result and the output tensors by
    index."""
    names = Names()
    return _compiled(
        ["def body(leaves):", *(f"    {line}" for line in _body(replay, names, True))], names, "body"
    )


# What the function takes and returns is stated by the callers, which write its source.
def _compiled(lines: list[str], names: Names, function: str) -> Any:
    """Compile the definition of ``function``; return the function."""
    source = "\n".join(lines) + "\n"
    filename = f"<tenon {function} {next(_COUNT)}>"
    space = names.space
    exec(compile(source, filename, "exec"), space)
    remember(filename, source)
    forget_with(space[function], filename)
    return space[function]


def _body(replay: Replay, names: Names, keep: bool = False) -> list[str]:
    """Return the statements of one run; with ``keep`` it returns the output tensors too."""
    recording, program, program_gradients = replay.recording, replay.program, replay.program_gradients
    lines = []
    if replay.touched:
        counters = names(tuple(tensor._counter() for tensor in replay.touched))
        lines.append(f"if {names(pending_copies.PENDING)}: {names(pending_copies.wait)}({counters})")
    if program_gradients.tensors:
        checks = [
            f"{_leaf(final, names)}._grad is not {names(program_gradients.tensors)}[{place}]"
            for place, final in enumerate(program_gradients.finals)
            if program_gradients.stays(place)
        ]
        counted = f"{names(sum)}({names(map)}({names(getrefcount)}, {names(program_gradients.watched)}))"
        checks.append(f"{counted} != {names(program_gradients.total)}[0]")
        lines.append(f"if {' or '.join(checks)}: {names(program_gradients.separate)}(leaves)")
    for position, (buffer, get) in zip(replay.positions, replay.buffers, strict=True):
        source = f"leaves[{position}].raw" if position is not None else f"{names(get)}(leaves)"
        lines.append(f"{names(buffer)}[...] = {source}")
    numbers = ", ".join(reading.source(names) for reading in replay.getters)
    token = [names(enter), names(IGNORE), names(leave)]
    stop = []
    if recording.expects:  # then the call runs eagerly from its start, with the same random numbers
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
        lines.append(f"t = {names(find)}(leaves); t._settle()")
        lines.append(f"t.raw[...] = {names(buffer)}; t._counter()[0] += 1")
    for final, value in replay.gradients:
        gradient = (
            names(value) if value.__class__ is not int else f"{names(program_gradients.tensors)}[{value}]"
        )
        if value.__class__ is int and program_gradients.returned_as_copy[value]:
            gradient = f"{names(Tensor._of)}({gradient}.raw.copy(), {names(replay.backend)})"
        lines.append(f"{_leaf(final, names)}._grad = {gradient}")
    lines += _returned(replay, names)
    lines += [f"{names(effect)}()" for effect in recording.after]
    result = _nested(recording, names)
    if keep:
        outputs = {each.index for each in recording.returned if each.__class__ is Output}
        return [*lines, f"return {result}, {{{', '.join(f'{i}: y{i}' for i in sorted(outputs))}}}"]
    return [*lines, f"return {result}"]


def _leaf(final: FinalGradient, names: Names) -> str:
    """Return the expression for the tensor whose ``grad`` is set."""
    return names(final.tensor) if final.tensor is not None else f"{names(final.leaf)}(leaves)"


def _returned(replay: Replay, names: Names) -> list[str]:
    """Return the statements that copy outputs to new tensors ``y<index>``."""
    lines = []
    returned: set[int] = set()
    for each in replay.recording.returned:
        if each.__class__ is Output and each.index not in returned:
            returned.add(each.index)
            array = replay.output(each.index)
            lines.append(
                f"y{each.index} = {names(Tensor._of)}({names(array)}.copy(), {names(replay.backend)})"
            )
    return lines


def _nested(recording: Recording, names: Names) -> str:
    """Return the expression for the returned nested structure."""
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
