"""Max and average pooling of one to three spatial axes, and their gradients."""

from __future__ import annotations

from tenon.extend import Node
from tenon_target_c.emitters import emits
from tenon_target_c.families.products import is_float32
from tenon_target_c.program import Program, out, shape_text


def _fits(node: Node) -> bool:
    return is_float32(node) and len(node.args[0].aval.shape) <= 5


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


@emits("max_pool", when=_fits)
def emit_max_pool(program: Program, node: Node) -> None:
    """Add the maximum of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    a = node.attrs
    whole = all(2 * n <= s for n, s in zip(target.shape[2:], x.shape[2:], strict=True))
    if a["kernel"] == a["stride"] == (2, 2) and a["padding"] == (0, 0) and a["dilation"] == (1, 1) and whole:
        images = target.shape[0] * target.shape[1]
        program.step("k_max_pool_2", images, *x.shape[2:], *target.shape[2:], x, out(target))
    elif target.size:
        program.step("k_max_pool", geometry(x.shape, target.shape, node), x, out(target))


@emits("max_pool_grad", when=_fits)
def emit_max_pool_gradient(program: Program, node: Node) -> None:
    """Add the gradients at the positions of the maxima."""
    g, x = (program.dense(a) for a in node.args[:2])
    target = program.new(node)
    if target.size:
        program.step("k_max_pool_gradient", geometry(x.shape, g.shape, node), g, x, out(target))


def _divisor(node: Node) -> tuple[str, int]:
    divisor = node.attrs.get("divisor")
    return f"{float(divisor or 0)!r}f", int(node.attrs.get("include_pad", True))


@emits("avg_pool", when=_fits)
def emit_average_pool(program: Program, node: Node) -> None:
    """Add the mean of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step("k_average_pool", geometry(x.shape, target.shape, node), x, *_divisor(node), out(target))


@emits("avg_pool_grad", when=_fits)
def emit_average_pool_gradient(program: Program, node: Node) -> None:
    """Add the transpose of the means."""
    g, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        sizes = geometry(target.shape, g.shape, node)
        program.step("k_average_pool_gradient", sizes, g, *_divisor(node), out(target))


@emits("adaptive_avg_pool", when=_fits)
def emit_adaptive_pool(program: Program, node: Node) -> None:
    """Add means over windows that are chosen by the size of the output."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step("k_adaptive_pool", _adaptive(x.shape, target.shape), x, out(target))


@emits("adaptive_avg_pool_grad", when=_fits)
def emit_adaptive_pool_gradient(program: Program, node: Node) -> None:
    """Add the transpose of those means."""
    g, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step("k_adaptive_pool_gradient", _adaptive(target.shape, g.shape), g, out(target))


@emits("max_pool_indices", when=_fits)
def emit_max_pool_indices(program: Program, node: Node) -> None:
    """Add the place of the largest element of each window."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step("k_max_pool_indices", geometry(x.shape, target.shape, node), x, out(target))


@emits("adaptive_max_pool_indices", when=_fits)
def emit_adaptive_max_pool_indices(program: Program, node: Node) -> None:
    """Add the place of the largest element of windows that give an output of a certain size."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        program.step("k_adaptive_max_pool_indices", _adaptive(x.shape, target.shape), x, out(target))
