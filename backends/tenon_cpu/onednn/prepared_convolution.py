"""Convolutions of compiled programs: bound to their arrays once, in the layouts that the program keeps.

Called by ``prepared.py``, with the layouts removed from ``attrs``. Beyond the op's own attributes, ``attrs``
may hold

``epilogue`` (forward, into blocks): steps ``("mul", array)`` and ``("add", array)`` with a number for each
channel (``[C, 1, 1]``), and ``("add", array)`` of the output's shape and layout. A relu is not supported:
oneDNN's returns 0 for NaN. ``constant``: ``(1,)`` if the weight never changes; it is then packed once.
``counters``: ``{1: ...}``, the version counter of a weight that seldom changes (``weight_packing.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tenon.extend import Attrs, Operand, Thunk
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import post_op_argument
from tenon_cpu.onednn.chain import Chain
from tenon_cpu.onednn.convolution import problem_of, with_best_layouts
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.layouts import PLAIN, Assigned, Layout
from tenon_cpu.onednn.primitives import Memory, Primitive, packed, packing
from tenon_cpu.onednn.problems import Geometry, Layouts, Problem
from tenon_cpu.onednn.runtime import Buffer
from tenon_cpu.onednn.weight_packing import Packed, PackedOnReuse
from tenon_cpu.onednn.winograd import chain


def _geometry(attrs: Attrs) -> Geometry:
    return tuple(attrs["stride"]), tuple(attrs["padding"]), tuple(attrs["dilation"]), attrs["groups"]


def _descriptor(array: np.ndarray, layout: Layout) -> Descriptor:
    """Return the descriptor of an array: from its strides if the layout is plain, else from the layout."""
    return Descriptor.of(array) if layout == PLAIN else layout.descriptor(array.shape, array.dtype)


def _create(
    kind: str, problem: Problem, x: Layout, y: Layout, make: Callable[[Problem, Layouts], Primitive | None]
) -> Primitive | None:
    """Return ``make(problem, layouts)`` with the assigned layouts, where plain means the primitive's choice;
    if both are plain, with the best layouts."""
    if x == y == PLAIN:
        return with_best_layouts(kind, problem, make)
    primitive: Primitive | None = make(problem, (None if x == PLAIN else x, None if y == PLAIN else y))
    return primitive


def prepare_convolution(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``conv`` and ``convolution``."""
    x, weight, bias = (*ins, None)[:3]
    out, steps = outs[0], attrs.get("epilogue", ())
    arrays = [a for a in (x, weight, bias) if a is not None]
    problem = problem_of(arrays, x.shape, weight.shape, out.shape, _geometry(attrs))
    pair = (layouts.inputs[0], layouts.outputs[0])
    if problem is None or not representable(out) or (steps and pair[1] == PLAIN):
        return None
    target = _descriptor(out, pair[1])
    operands = [_operand(array, out, target) for _, array in steps]
    if any(operand is None for operand in operands):
        return None
    post_ops = tuple((name, described) for (name, _), described in zip(steps, operands, strict=True))

    def make(problem: Problem, pair: Layouts) -> Primitive | None:
        return problem.forward(pair, bias is not None, post_ops)

    primitive = _create("forward", problem, *pair, make)
    if primitive is None:
        return None
    memory, described = _weight(problem, primitive, weight, layouts.inputs[1], 1 in attrs.get("constant", ()))
    inputs = {c.SRC: _descriptor(x, pair[0]), c.WEIGHTS: described}
    after = [array for _, array in steps]
    if bias is not None:
        inputs[c.BIAS] = Descriptor.of(bias)
        after.insert(0, bias)
    inputs |= {post_op_argument(index): operand for index, operand in enumerate(operands) if operand}
    outputs, counter = {c.DST: target}, attrs.get("counters", {}).get(1)
    if isinstance(memory, Buffer):
        return Chain(primitive, inputs, outputs).bound(x, memory, *after, out)
    ready = chain("forward", problem, primitive, inputs, outputs, counter, _winograd_parts(steps, out))
    compute: Thunk = ready.bound(x, weight, *after, out)
    if counter is None or not isinstance(ready, Chain):
        return compute

    def on_packed() -> Packed | None:
        best_layout = primitive.layout(c.WEIGHTS)
        if best_layout == described:
            return None
        buffer, pack = packing(weight, best_layout, described)
        packed_inputs = inputs | {c.WEIGHTS: best_layout}
        return Chain(primitive, packed_inputs, outputs).bound(x, buffer, *after, out), pack

    return PackedOnReuse(counter, compute, on_packed)


def prepare_epilogue(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``epilogue``: a convolution with the steps that a graph pass has fused into it."""
    count = attrs["count"]
    steps = tuple(zip(attrs["steps"], ins[count:], strict=True))
    conv_attrs = attrs["attrs"] | {"epilogue": steps, "counters": attrs.get("counters", {})}
    return prepare_convolution(
        ins[:count], conv_attrs, outs, Assigned(layouts.inputs[:count], layouts.outputs)
    )


def _operand(array: np.ndarray, out: np.ndarray, target: Descriptor) -> Descriptor | None:
    """Return the descriptor of a post-op's operand: one number per channel, or an array of the result's
    layout. None for other operands."""
    if array.dtype != out.dtype or np.may_share_memory(array, out):
        return None
    if array.shape == out.shape:
        return target
    channelwise = (out.shape[1], *(1,) * (out.ndim - 2))
    matches = array.shape == channelwise and array.flags.c_contiguous
    return Descriptor.rows((1, *channelwise), out.dtype) if matches else None


def _winograd_parts(steps: Sequence[tuple[str, np.ndarray]], out: np.ndarray) -> tuple[str, ...]:
    """Return the steps as ``parts`` of ``winograd.chain``."""
    full = [array.shape == out.shape for _, array in steps]
    return tuple(
        "added" if is_full else {"mul": "scale", "add": "shift"}[name]
        for (name, _), is_full in zip(steps, full, strict=True)
    )


def _weight(
    problem: Problem, primitive: Primitive, weight: np.ndarray, layout: Layout, constant: bool
) -> tuple[Memory, Descriptor]:
    """Return the weight's memory and its descriptor; a constant weight is packed immediately."""
    described = (
        problem.weight_like(weight) if layout == PLAIN else layout.descriptor(problem.window, problem.dtype)
    )
    best_layout = primitive.layout(c.WEIGHTS)
    if constant and best_layout != described:
        return packed(weight, best_layout, described), best_layout
    return weight, described


def prepare_input_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``conv_input_grad``."""
    (g, weight), dx = ins, outs[0]
    problem = problem_of([g, weight], dx.shape, weight.shape, g.shape, _geometry(attrs))
    if problem is None or not representable(dx):
        return None
    primitive = _create("input", problem, layouts.outputs[0], layouts.inputs[0], Problem.input_grad)
    if primitive is None:
        return None
    memory, described = _weight(problem, primitive, weight, layouts.inputs[1], 1 in attrs.get("constant", ()))
    inputs = {c.DIFF_DST: _descriptor(g, layouts.inputs[0]), c.WEIGHTS: described}
    outputs = {c.DIFF_SRC: _descriptor(dx, layouts.outputs[0])}
    if isinstance(memory, Buffer):
        return Chain(primitive, inputs, outputs).bound(g, memory, dx)
    return chain("input", problem, primitive, inputs, outputs).bound(g, weight, dx)


def prepare_weight_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``conv_weight_grad``; a second output is the gradient of the bias."""
    (x, g), dw = ins, outs[0]
    bias = outs[1] if len(outs) > 1 else None
    problem = problem_of([x, g], x.shape, dw.shape, g.shape, _geometry(attrs))
    if problem is None or not all(map(representable, outs)):
        return None

    def make(problem: Problem, pair: Layouts) -> Primitive | None:
        return problem.weight_grad(pair, bias is not None)

    pair = (layouts.inputs[0], layouts.inputs[1])
    primitive = _create("weight", problem, *pair, make)
    if primitive is None:
        return None
    inputs = {c.SRC: _descriptor(x, pair[0]), c.DIFF_DST: _descriptor(g, pair[1])}
    outputs = {c.DIFF_WEIGHTS: problem.weight_like(dw)}
    if bias is not None:
        outputs[c.DIFF_BIAS] = Descriptor.of(bias)
    return chain("weight", problem, primitive, inputs, outputs).bound(x, g, *outs)


PREPARE = {
    "epilogue": prepare_epilogue,
    "conv": prepare_convolution,
    "convolution": prepare_convolution,
    "conv_input_grad": prepare_input_grad,
    "conv_weight_grad": prepare_weight_grad,
}
