"""Convolutions of compiled programs: bound to their arrays once, in the layouts that the program keeps.

Called by ``prepared.py``, with the layouts taken out of ``attrs``. What else ``attrs`` may hold beyond the
op's:

``epilogue`` (forward, into blocks): steps ``("mul", array)`` and ``("add", array)`` with a number for each
channel (``[C, 1, 1]``), and ``("add", array)`` of the output's shape and layout. A relu is none of them:
oneDNN's own gives 0 for NaN. ``constant``: ``(1,)`` if the weight never changes; it is then packed once.
``counters``: ``{1: ...}``, the weight's version counter, of one that seldom changes (``lasting.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tenon.extend import Attrs, Operand, Thunk
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import post_op_argument
from tenon_cpu.onednn.chain import Chain
from tenon_cpu.onednn.convolution import chosen, problem_of
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.lasting import Lasting, Packed
from tenon_cpu.onednn.layouts import PLAIN, Assigned, Layout
from tenon_cpu.onednn.primitives import Memory, Primitive, packed, packing
from tenon_cpu.onednn.problems import Geometry, Layouts, Problem
from tenon_cpu.onednn.runtime import Buffer
from tenon_cpu.onednn.winograd import chain


def _geometry(attrs: Attrs) -> Geometry:
    return tuple(attrs["stride"]), tuple(attrs["padding"]), tuple(attrs["dilation"]), attrs["groups"]


def _given(array: np.ndarray, layout: Layout) -> Descriptor:
    """The descriptor of an array: as it lies in memory where that is plain, else as its layout says."""
    return Descriptor.of(array) if layout == PLAIN else layout.descriptor(array.shape, array.dtype)


def _made(
    kind: str, problem: Problem, x: Layout, y: Layout, make: Callable[[Problem, Layouts], Primitive | None]
) -> Primitive | None:
    """``make(problem, layouts)``: in those assigned, the primitive's own choice beside them, or the best."""
    if x == y == PLAIN:
        return chosen(kind, problem, make)
    made: Primitive | None = make(problem, (None if x == PLAIN else x, None if y == PLAIN else y))
    return made


def prepare_convolution(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """``conv`` and ``convolution``."""
    x, weight, bias = (*ins, None)[:3]
    out, steps = outs[0], attrs.get("epilogue", ())
    arrays = [a for a in (x, weight, bias) if a is not None]
    problem = problem_of(arrays, x.shape, weight.shape, out.shape, _geometry(attrs))
    pair = (layouts.inputs[0], layouts.outputs[0])
    if problem is None or not representable(out) or (steps and pair[1] == PLAIN):
        return None
    target = _given(out, pair[1])
    operands = [_operand(array, out, target) for _, array in steps]
    if any(operand is None for operand in operands):
        return None
    post_ops = tuple((name, described) for (name, _), described in zip(steps, operands, strict=True))

    def make(problem: Problem, pair: Layouts) -> Primitive | None:
        return problem.forward(pair, bias is not None, post_ops)

    made = _made("forward", problem, *pair, make)
    if made is None:
        return None
    memory, described = _weight(problem, made, weight, layouts.inputs[1], 1 in attrs.get("constant", ()))
    inputs = {c.SRC: _given(x, pair[0]), c.WEIGHTS: described}
    after = [array for _, array in steps]
    if bias is not None:
        inputs[c.BIAS] = Descriptor.of(bias)
        after.insert(0, bias)
    inputs |= {post_op_argument(place): operand for place, operand in enumerate(operands) if operand}
    outputs, counter = {c.DST: target}, attrs.get("counters", {}).get(1)
    if isinstance(memory, Buffer):
        return Chain(made, inputs, outputs).bound(x, memory, *after, out)
    ready = chain("forward", problem, made, inputs, outputs, counter, _parts(steps, out))
    compute: Thunk = ready.bound(x, weight, *after, out)
    if counter is None or not isinstance(ready, Chain):
        return compute

    def on_packed() -> Packed | None:
        wanted = made.layout(c.WEIGHTS)
        if wanted == described:
            return None
        kept, pack = packing(weight, wanted, described)
        given = inputs | {c.WEIGHTS: wanted}
        return Chain(made, given, outputs).bound(x, kept, *after, out), pack

    return Lasting(counter, compute, on_packed)


def prepare_epilogue(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """``epilogue``: a convolution with the steps that a pass found after it."""
    count = attrs["count"]
    steps = tuple(zip(attrs["steps"], ins[count:], strict=True))
    own = attrs["attrs"] | {"epilogue": steps, "counters": attrs.get("counters", {})}
    return prepare_convolution(ins[:count], own, outs, Assigned(layouts.inputs[:count], layouts.outputs))


def _operand(array: np.ndarray, out: np.ndarray, target: Descriptor) -> Descriptor | None:
    """A number for each channel, or an array that lies like the result; None for others."""
    if array.dtype != out.dtype or np.may_share_memory(array, out):
        return None
    if array.shape == out.shape:
        return target
    channelwise = (out.shape[1], *(1,) * (out.ndim - 2))
    whole = array.shape == channelwise and array.flags.c_contiguous
    return Descriptor.rows((1, *channelwise), out.dtype) if whole else None


def _parts(steps: Sequence[tuple[str, np.ndarray]], out: np.ndarray) -> tuple[str, ...]:
    """What the steps are to Winograd's way."""
    whole = [array.shape == out.shape for _, array in steps]
    return tuple(
        "added" if all_of_it else {"mul": "scale", "add": "shift"}[name]
        for (name, _), all_of_it in zip(steps, whole, strict=True)
    )


def _weight(
    problem: Problem, made: Primitive, weight: np.ndarray, layout: Layout, constant: bool
) -> tuple[Memory, Descriptor]:
    """The weight's memory and its descriptor; packed here and now if it never changes."""
    described = (
        problem.weight_like(weight) if layout == PLAIN else layout.descriptor(problem.window, problem.dtype)
    )
    wanted = made.layout(c.WEIGHTS)
    if constant and wanted != described:
        return packed(weight, wanted, described), wanted
    return weight, described


def prepare_input_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """``conv_input_grad``."""
    (g, weight), dx = ins, outs[0]
    problem = problem_of([g, weight], dx.shape, weight.shape, g.shape, _geometry(attrs))
    if problem is None or not representable(dx):
        return None
    made = _made("input", problem, layouts.outputs[0], layouts.inputs[0], Problem.input_grad)
    if made is None:
        return None
    memory, described = _weight(problem, made, weight, layouts.inputs[1], 1 in attrs.get("constant", ()))
    inputs = {c.DIFF_DST: _given(g, layouts.inputs[0]), c.WEIGHTS: described}
    outputs = {c.DIFF_SRC: _given(dx, layouts.outputs[0])}
    if isinstance(memory, Buffer):
        return Chain(made, inputs, outputs).bound(g, memory, dx)
    return chain("input", problem, made, inputs, outputs).bound(g, weight, dx)


def prepare_weight_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """``conv_weight_grad``; with a second output, the bias's gradient too."""
    (x, g), dw = ins, outs[0]
    bias = outs[1] if len(outs) > 1 else None
    problem = problem_of([x, g], x.shape, dw.shape, g.shape, _geometry(attrs))
    if problem is None or not all(map(representable, outs)):
        return None

    def make(problem: Problem, pair: Layouts) -> Primitive | None:
        return problem.weight_grad(pair, bias is not None)

    pair = (layouts.inputs[0], layouts.inputs[1])
    made = _made("weight", problem, *pair, make)
    if made is None:
        return None
    inputs = {c.SRC: _given(x, pair[0]), c.DIFF_DST: _given(g, pair[1])}
    outputs = {c.DIFF_WEIGHTS: problem.weight_like(dw)}
    if bias is not None:
        outputs[c.DIFF_BIAS] = Descriptor.of(bias)
    return chain("weight", problem, made, inputs, outputs).bound(x, g, *outs)


PREPARE = {
    "epilogue": prepare_epilogue,
    "conv": prepare_convolution,
    "convolution": prepare_convolution,
    "conv_input_grad": prepare_input_grad,
    "conv_weight_grad": prepare_weight_grad,
}
