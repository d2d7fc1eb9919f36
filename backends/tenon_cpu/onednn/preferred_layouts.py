"""The layouts in which an op's inputs and outputs are fastest, for the graph pass that assigns layouts.

``wanted_layouts`` needs shapes only, and returns layouts that ``prepare`` accepts. Ops in ``SEEDS``
(convolutions) gain enough to start a blocked region. Others (pooling, batch norm, sums) continue one: they
are fast on blocked arrays, but not worth a reorder. ``follows`` is true for other ops that any layout suits:
they work element by element on arrays of one shape, so any layout will do if all have it. Everything else is
plain, and so are a program's inputs and outputs.

The pass assigns the seeds their layouts; propagates them through the ops that continue a region or follow, if
at least one input is blocked already; and inserts ``layouts.reorder`` where a value's layout is not that of
its reader. A weight stays ``PLAIN``, and the convolution packs it at every call, unless it is constant: then
the pass has it packed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tenon.extend import Attrs, Aval, Kind, Op, Operand
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.layouts import PLAIN as PLAIN  # for the pass, with reorder
from tenon_cpu.onednn.layouts import Assigned, Layout, blocked, named, packing
from tenon_cpu.onednn.layouts import reorder as reorder
from tenon_cpu.onednn.prepared_int8 import preferred_convolution_layouts, preferred_pool_layouts
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.problems import Layouts, Problem
from tenon_cpu.onednn.reductions import reducible
from tenon_cpu.onednn.runtime import available

#: The rule of one op: returns its layouts, or None if all are plain.
Rule = Callable[[Sequence[Operand], Sequence[Aval], Attrs], Assigned | None]
_FLOATS = frozenset({"float32", "bfloat16"})


def wanted_layouts(op: Op, ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    """Return the layouts in which ``op`` is fastest, one per input and output; None if all are plain.

    ``ins`` are avals (``shape``, ``dtype``), numbers or None, ``outs`` avals, residuals included.
    """
    rule = _RULES.get(op.name)
    if rule is None or not available() or not (op.name in _INTEGER or _computable(ins, outs)):
        return None
    assigned = rule(ins, outs, attrs)
    return None if assigned is None or assigned.all_plain else assigned


def follows(op: Op, ins: Sequence[Operand], outs: Sequence[Aval]) -> bool:
    """Whether ``op`` is correct on arrays of any one layout: it is elementwise, and all arrays have one
    shape."""
    if op.kind is not Kind.ELEMENTWISE or op.name in _CHANNELWISE:
        return False
    shape = tuple(outs[0].shape)
    same = all(tuple(a.shape) == shape for a in outs)
    return same and all(
        math.prod(a.shape) == 1 or tuple(a.shape) == shape for a in ins if hasattr(a, "shape")
    )


#: Elementwise by kind, but with arguments for each channel.
_CHANNELWISE = frozenset({"batch_norm_inference"})


def _computable(ins: Sequence[Operand], outs: Sequence[Aval]) -> bool:
    dtype = outs[0].dtype
    if str(dtype) not in _FLOATS or not all(math.prod(a.shape) for a in outs):
        return False
    return all(a.dtype == dtype and math.prod(a.shape) for a in ins if hasattr(a, "shape"))


def _problem(x: Aval, weight: Aval, y: Aval, attrs: Attrs) -> Problem:
    shapes = (tuple(x.shape), tuple(weight.shape), tuple(y.shape))
    geometry = (tuple(attrs["stride"]), tuple(attrs["padding"]), tuple(attrs["dilation"]))
    return Problem(*shapes, np.dtype(x.dtype), *geometry, attrs["groups"])


def _with_layouts(
    problem: Problem, make: Callable[[Layouts], Primitive | None], x: int, y: int
) -> tuple[Primitive, Layout, Layout] | None:
    """Return a primitive and the layouts of its activations: blocked where the channels are a multiple of the
    block size, else the primitive's choice."""
    layout = blocked()
    fits = [layout != PLAIN and layout.fits(shape) for shape in (problem.x, problem.y)]
    if not any(fits):
        return None
    primitive = make((layout if fits[0] else None, layout if fits[1] else None))
    if primitive is None:
        return None
    layouts = []
    for position, shape in ((x, problem.x), (y, problem.y)):
        layouts.append(named(primitive.layout(position), shape, problem.dtype) or PLAIN)
    return primitive, layouts[0], layouts[1]


def _packed(primitive: Primitive, problem: Problem) -> Layout:
    return packing(primitive.layout(c.WEIGHTS), Descriptor.rows(problem.window, problem.dtype))


def _convolution(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    problem = _problem(ins[0], ins[1], outs[0], attrs)
    bias = len(ins) > 2 and ins[2] is not None
    pair = _with_layouts(problem, lambda layouts: problem.forward(layouts, bias), c.SRC, c.DST)
    if pair is None:
        return None
    primitive, x, y = pair
    others = (PLAIN, y)[: len(ins) - 2]  # the bias, and the array that is added to the result
    return Assigned((x, _packed(primitive, problem), *others), (y,))


def _input_grad(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    problem = _problem(outs[0], ins[1], ins[0], attrs)
    if problem.x[1] < 8:
        return None
    pair = _with_layouts(problem, problem.input_grad, c.DIFF_SRC, c.DIFF_DST)
    if pair is None:
        return None
    primitive, x, y = pair
    return Assigned((y, _packed(primitive, problem)), (x,))


def _weight_grad(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    problem = _problem(ins[0], outs[0], ins[1], attrs)
    pair = _with_layouts(problem, problem.weight_grad, c.SRC, c.DIFF_DST)
    return None if pair is None else Assigned(pair[1:], (PLAIN,) * len(outs))


def _blocks(array: Aval) -> Layout | None:
    layout = blocked()
    return layout if layout != PLAIN and layout.fits(tuple(array.shape)) else None


def _blocked_at(inputs: Sequence[int], outputs: Sequence[int]) -> Rule:
    """Return the rule that makes the inputs and outputs with these indices blocked, the others plain."""

    def rule(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
        del attrs
        layouts = [_blocks(a) for a in (*(ins[i] for i in inputs), *(outs[i] for i in outputs))]
        if any(layout is None for layout in layouts):
            return None
        layout = blocked()
        return Assigned(
            tuple(layout if i in inputs else PLAIN for i in range(len(ins))),
            tuple(layout if i in outputs else PLAIN for i in range(len(outs))),
        )

    return rule


def _reduction(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    x = ins[0]
    layout, axes = _blocks(x), [a % len(x.shape) for a in attrs["axes"]]
    if layout is None or not reducible(len(x.shape), axes) or str(x.dtype) != "float32":
        return None
    return Assigned((layout,), (PLAIN,))


def _float32_only(rule: Rule) -> Rule:
    """Return ``rule`` restricted to float32."""

    def checked(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
        return rule(ins, outs, attrs) if str(outs[0].dtype) == "float32" else None

    return checked


def _average(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    divided = attrs.get("divisor") is not None or attrs.get("ceil_mode")
    return None if divided else _float32_only(_blocked_at([0], [0]))(ins, outs, attrs)


def _maximum(*inputs: int) -> Rule:
    """Return the rule for max pooling without dilation, the only case that oneDNN is fast for."""
    rule = _float32_only(_blocked_at(inputs, [0]))

    def undilated(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
        return rule(ins, outs, attrs) if set(attrs["dilation"]) == {1} else None

    return undilated


def _norm_grad(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    complete = attrs["needs"][0] and (ins[2] is not None or not attrs["needs"][1])
    return _float32_only(_blocked_at([0, 1], [0]))(ins, outs, attrs) if complete else None


def _adaptive(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    inner, outer = sorted((tuple(ins[0].shape[2:]), tuple(outs[0].shape[2:])), key=math.prod)
    even = all(s % n == 0 for s, n in zip(outer, inner, strict=True))
    return _float32_only(_blocked_at([0], [0]))(ins, outs, attrs) if even else None


def finishes(
    op: Op,
    ins: Sequence[Operand],
    outs: Sequence[Aval],
    attrs: Attrs,
    steps: Sequence[tuple[str, Aval]],
) -> bool:
    """Whether a prepared ``op`` can apply the steps, each "add" or "mul" with an operand, to its result.

    A convolution can multiply by one number per channel, add one number per channel, and add an array of the
    result's shape, in this order; any of them may be missing. A matrix product can add its bias.
    """
    y = outs[0]
    if op.name not in FINISHED or str(y.dtype) != "float32" or any(a.dtype != y.dtype for _, a in steps):
        return False
    if op.name == "matmul":
        return _takes_bias(ins, y, steps)
    assigned = wanted_layouts(op, ins, outs, attrs)
    channelwise = (y.shape[1], *(1,) * (len(y.shape) - 2))
    shapes = [tuple(a.shape) for _, a in steps]
    names = [name for name, _ in steps]
    if shapes[-1] == tuple(y.shape) and names[-1] == "add":
        del shapes[-1], names[-1]
    if (
        assigned is None
        or assigned.outputs[0] == PLAIN
        or names not in ([], ["mul"], ["add"], ["mul", "add"])
    ):
        return False
    return all(shape == channelwise for shape in shapes)


#: Rows below which BLAS's product of vectors and a matrix is faster than oneDNN's with a bias.
_ROWS = 3


def _takes_bias(ins: Sequence[Operand], y: Aval, steps: Sequence[tuple[str, Aval]]) -> bool:
    """Whether the only step is the addition of a bias, which costs oneDNN nothing. A residual or an
    activation costs it more than generated code, which fuses it with the next norm: ``docs/adr/0016``."""
    (name, operand), *others = steps
    shape = tuple(y.shape)
    return bool(
        name == "add" and not others and len(ins[1].shape) == 2 and len(shape) > 1
        and tuple(operand.shape) == shape[-1:] and math.prod(shape[:-1]) >= _ROWS and shape[-1] > 1
        and all(a.dtype == y.dtype for a in ins)
    )  # fmt: skip


def _epilogue(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    count = attrs["count"]
    if attrs["base"].name == "matmul":
        return None
    assigned = _convolution(ins[:count], outs, attrs["attrs"])
    if assigned is None:
        return None
    shape = tuple(outs[0].shape)
    others = (assigned.outputs[0] if tuple(a.shape) == shape else PLAIN for a in ins[count:])
    return Assigned((*assigned.inputs, *others), assigned.outputs)


#: Ops that can apply steps to their result before they write it.
FINISHED = frozenset({"conv", "convolution", "matmul"})
#: Ops that start a blocked region.
SEEDS = frozenset({"conv", "convolution", "conv_input_grad", "conv_weight_grad", "epilogue", "int8_conv"})
#: Ops of 8-bit integers, whose rules check dtypes and shapes themselves.
_INTEGER = frozenset({"int8_conv", "int8_max_pool"})
_RULES: dict[str, Rule] = {
    "batch_norm": _float32_only(_blocked_at([0], [0])),
    "batch_norm_grad": _norm_grad,
    "max_pool": _maximum(0),
    "max_pool_grad": _maximum(0, 1, 2),
    "avg_pool": _average,
    "avg_pool_grad": _average,
    "adaptive_avg_pool": _adaptive,
    "adaptive_avg_pool_grad": _adaptive,
    "sum": _reduction,
    "mean": _reduction,
    "epilogue": _epilogue,
    "conv": _convolution,
    "convolution": _convolution,
    "conv_input_grad": _input_grad,
    "conv_weight_grad": _weight_grad,
    "int8_conv": preferred_convolution_layouts,
    "int8_max_pool": preferred_pool_layouts,
}
