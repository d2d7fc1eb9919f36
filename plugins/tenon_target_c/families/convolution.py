"""Convolutions of one to three spatial axes, transposed ones, and their gradients."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_c.emitters import emits
from tenon_target_c.families.elementwise import fill
from tenon_target_c.families.products import DEPTH, NUMBERS, has_one_dtype, pack_rows, rounded
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import SUFFIXES, Pointer, View

#: Output positions of a block: see ``kernels/convolution.c``.
POSITIONS = 192
#: Output lines up to this width are copied from images with padding.
NARROW = 64


def _is_supported(node: Node) -> bool:
    return has_one_dtype(node, *NUMBERS) and len(node.attrs["stride"]) <= 3


def geometry(x: tuple[int, ...], result: tuple[int, ...], kernel: tuple[int, ...], node: Node) -> list[int]:
    """Return the 22 sizes of ``kernels/windows.c``: of a convolution from shape ``x`` to ``result``."""
    lead = 3 - len(kernel)
    a = node.attrs
    if all(s == 1 for s in (*kernel, *a["stride"])) and not any(a["padding"]):  # each position by itself
        line = [math.prod(x[2:]), result[1], 1, 1, math.prod(x[2:])]
        return [x[0], x[1], 1, 1, *line, *(1,) * 6, *(0,) * 3, *(1,) * 3, a["groups"]]
    ones, zeros = (1,) * lead, (0,) * lead
    return [
        x[0], x[1], *ones, *x[2:], result[1], *ones, *result[2:], *ones, *kernel, *ones, *a["stride"], *zeros,
        *a["padding"], *ones, *a["dilation"], a["groups"],
    ]  # fmt: skip


@emits("conv", "convolution", when=_is_supported)
def emit_convolution(program: Program, node: Node) -> None:
    """Add a convolution: each channel by itself, or packed windows times packed filters."""
    x, weight = program.dense(node.args[0]), node.args[1]
    bias = node.args[2] if len(node.args) > 2 else None
    target = program.result(node)
    if not target.size:
        return
    shape = tuple(weight.aval.shape)
    sizes = geometry(x.shape, target.shape, shape[2:], node)
    text = f"(const long[]){shape_text(sizes)}"
    biased = program.dense(bias) if bias is not None else "NULL"
    if x.dtype != np.float32:
        kernel = f"k_plain_convolution_{SUFFIXES[x.dtype.name]}"
        program.step(kernel, text, x, program.dense(weight), biased, out(target))
        return
    addend, relu = program.epilogue(node)
    groups = node.attrs["groups"]
    if not x.size or not math.prod(shape):
        raise NotImplementedError("a convolution of no channels")
    if shape[1] == 1 and groups > 1:
        program.step("k_depthwise", text, x, program.dense(weight), biased, addend, relu, out(target))
        return
    packed = filters(program, weight, groups)
    scratch = program.scratch(min(DEPTH, math.prod(shape[1:])) * POSITIONS)
    padded: Pointer | str = "NULL"
    if sizes[8] <= NARROW and sizes[14] == 1 and sizes[9:12] != [1, 1, 1]:
        image = math.prod(s + 2 * p for s, p in zip(sizes[2:5], sizes[15:18], strict=True))
        padded = out(program.scratch(shape[1] * image + 8))
    program.step("k_convolution", text, x, packed, biased, addend, relu, out(target), padded, out(scratch))


def filters(program: Program, weight: Ref, groups: int, swapped: bool = False) -> View:
    """Return the filters of each group as packed rows: ``[outputs, inputs * taps]``, or transposed."""
    shape = tuple(weight.aval.shape)
    outputs, inner = shape[0] // groups, math.prod(shape[1:])
    known = program.known(weight)
    if known is not None:
        matrices = known.reshape(groups, outputs, inner)
        matrices = matrices.swapaxes(1, 2) if swapped else matrices
        return program.weight(np.concatenate([pack_rows(m) for m in matrices]))
    packed = program.scratch(math.prod(shape))
    m, k, row, column = (inner, outputs, 1, inner) if swapped else (outputs, inner, inner, 1)
    program.step(
        "k_pack_filters", groups, m, k, program.dense(weight), row, column, outputs * inner, out(packed)
    )
    return packed


@emits("conv_input_grad", when=_is_supported)
def emit_transposed(program: Program, node: Node) -> None:
    """Add a transposed convolution."""
    grad, weight = program.dense(node.args[0]), node.args[1]
    target = program.result(node)
    if not target.size:
        return
    if not grad.size:
        fill(program, target, 0)
        return
    shape = tuple(weight.aval.shape)
    groups = node.attrs["groups"]
    sizes = geometry(target.shape, grad.shape, shape[2:], node)
    text = f"(const long[]){shape_text(sizes)}"
    if grad.dtype != np.float32:
        kernel = f"k_plain_transposed_convolution_{SUFFIXES[grad.dtype.name]}"
        program.step(kernel, text, grad, program.dense(weight), out(target))
        return
    packed = filters(program, weight, groups, swapped=True)
    positions = math.prod(grad.shape[2:])
    columns = program.scratch(math.prod(shape[1:]) * positions)
    panels = program.scratch(shape[0] // groups * rounded(positions))
    program.step(
        "k_transposed_convolution", text, grad, packed, "NULL", out(target), out(columns), out(panels)
    )


@emits("conv_weight_grad", when=_is_supported)
def emit_weight_gradient(program: Program, node: Node) -> None:
    """Add the gradient of a convolution for its weight."""
    x, grad = (program.dense(a) for a in node.args)
    target = program.result(node)
    if not target.size:
        return
    if not x.size or not grad.size:
        fill(program, target, 0)
        return
    kernel = tuple(node.attrs["kernel"])
    sizes = geometry(x.shape, grad.shape, kernel, node)
    text = f"(const long[]){shape_text(sizes)}"
    if x.dtype != np.float32:
        program.step(f"k_plain_weight_gradient_{SUFFIXES[x.dtype.name]}", text, x, grad, out(target))
        return
    groups = node.attrs["groups"]
    inner, positions = x.shape[1] // groups * math.prod(kernel), math.prod(grad.shape[2:])
    matrix = program.scratch(inner * positions)
    panels = program.scratch(rounded(inner) * positions)
    rows = program.scratch(grad.shape[1] // groups * min(positions, DEPTH))
    program.step("k_weight_gradient", text, x, grad, out(target), out(matrix), out(panels), out(rows))
