"""Max and average pooling of one to three spatial axes, and their gradients."""

from __future__ import annotations

import numpy as np

from tenon.extend import Node
from tenon_target_c.emitters import emits
from tenon_target_c.families.products import FLOATS, NUMBERS
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import SUFFIXES, View


def _supports_average_pool(node: Node) -> bool:
    return _supports_max_pool(node) and node.avals[0].dtype.name in FLOATS


def _supports_max_pool(node: Node) -> bool:
    """Whether all arrays are numbers of one type, of up to three spatial axes."""
    kinds = {r.aval.dtype.name for r in node.refs}
    return len(kinds) == 1 and kinds <= set(NUMBERS) and len(node.args[0].aval.shape) <= 5


def _kernel(name: str, x: View) -> str:
    return f"{name}_{SUFFIXES[x.dtype.name]}"


def geometry(x: tuple[int, ...], result: tuple[int, ...], node: Node) -> str:
    """Return the sizes of ``kernels/pooling.c`` as C."""
    a = node.attrs
    kernel = tuple(a["kernel"])
    ones, zeros = (1,) * (3 - len(kernel)), (0,) * (3 - len(kernel))
    dilation = a.get("dilation", (1,) * len(kernel))
    sizes = [
        x[0] * x[1], *ones, *x[2:], *ones, *result[2:], *ones, *kernel, *ones, *a["stride"], *zeros,
        *a["padding"], *ones, *dilation,
    ]  # fmt: skip
    return f"(const long[]){shape_text(sizes)}"


def _adaptive(x: tuple[int, ...], result: tuple[int, ...]) -> str:
    ones = (1,) * (5 - len(x))
    return f"(const long[]){shape_text([x[0] * x[1], *ones, *x[2:], *ones, *result[2:]])}"


@emits("max_pool", when=_supports_max_pool)
def emit_max_pool(program: Program, node: Node) -> None:
    """Add the maximum of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    a = node.attrs
    whole = all(2 * n <= s for n, s in zip(target.shape[2:], x.shape[2:], strict=True))
    plain = x.dtype == np.float32 and a["kernel"] == a["stride"] == (2, 2)
    if plain and a["padding"] == (0, 0) and a["dilation"] == (1, 1) and whole:
        images = target.shape[0] * target.shape[1]
        program.step("k_max_pool_2", images, *x.shape[2:], *target.shape[2:], x, out(target))
    elif target.size:
        program.step(_kernel("k_max_pool", x), geometry(x.shape, target.shape, node), x, out(target))


@emits("max_pool_grad", when=_supports_average_pool)
def emit_max_pool_gradient(program: Program, node: Node) -> None:
    """Add the gradients at the positions of the maxima."""
    g, x = (program.dense(a) for a in node.args[:2])
    target = program.new(node)
    if target.size:
        program.step(_kernel("k_max_pool_gradient", g), geometry(x.shape, g.shape, node), g, x, out(target))


def _divisor(node: Node) -> tuple[str, int]:
    divisor = node.attrs.get("divisor")
    suffix = "f" if node.avals[0].dtype == np.float32 else ""
    return f"{float(divisor or 0)!r}{suffix}", int(node.attrs.get("include_pad", True))


@emits("avg_pool", when=_supports_average_pool)
def emit_average_pool(program: Program, node: Node) -> None:
    """Add the mean of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step(
            _kernel("k_average_pool", x),
            geometry(x.shape, target.shape, node),
            x,
            *_divisor(node),
            out(target),
        )


@emits("avg_pool_grad", when=_supports_average_pool)
def emit_average_pool_gradient(program: Program, node: Node) -> None:
    """Add the transpose of the means."""
    g, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        sizes = geometry(target.shape, g.shape, node)
        program.step(_kernel("k_average_pool_gradient", g), sizes, g, *_divisor(node), out(target))


@emits("adaptive_avg_pool", when=_supports_average_pool)
def emit_adaptive_pool(program: Program, node: Node) -> None:
    """Add means over windows that are chosen by the size of the output."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step(_kernel("k_adaptive_pool", x), _adaptive(x.shape, target.shape), x, out(target))


@emits("adaptive_avg_pool_grad", when=_supports_average_pool)
def emit_adaptive_pool_gradient(program: Program, node: Node) -> None:
    """Add the transpose of those means."""
    g, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step(_kernel("k_adaptive_pool_gradient", g), _adaptive(target.shape, g.shape), g, out(target))


@emits("max_pool_indices", when=_supports_max_pool)
def emit_max_pool_indices(program: Program, node: Node) -> None:
    """Add the index of the maximum of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step(_kernel("k_max_pool_indices", x), geometry(x.shape, target.shape, node), x, out(target))


@emits("adaptive_max_pool_indices", when=_supports_max_pool)
def emit_adaptive_max_pool_indices(program: Program, node: Node) -> None:
    """Add the index of the maximum of each of the windows that give an output of a certain size."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step(
            _kernel("k_adaptive_max_pool_indices", x), _adaptive(x.shape, target.shape), x, out(target)
        )
