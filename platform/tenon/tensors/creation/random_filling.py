"""Fill tensors with random numbers, drawn in the order of PyTorch's CPU generators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import random
from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.op import table
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.kernels.whole_arrays import beside
from tenon.random.draws import BROADCAST, Draw
from tenon.random.weighted import check_multinomial
from tenon.tensors.creation.create import wrap
from tenon.tensors.inplace import check_leaf, check_overlap, inplace
from tenon.tensors.refused_writes import refuse_writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tenon.random.generator import Generator
    from tenon.tensors.tensor import Tensor


def draw_into(
    x: Tensor,
    name: str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    generator: Generator | None,
) -> Tensor:
    """Fill ``x`` with numbers of the function ``name`` of ``tenon.random`` and increment its version."""
    if x.is_inference() and not MODE.inference:
        refuse_writing()
    if MODE.enabled and x.requires_grad:
        check_leaf(x)
    x._settle()
    if not isinstance(x.raw, Aval):
        check_overlap(x.raw)
        function = getattr(random, name)
        if name == "bernoulli":
            kwargs = {"p": args[0]}
            args = ()
        named = dict(zip(_PARAMETERS.get(name, ()), args, strict=False)) | kwargs
        if WATCHERS.recorder is not None:
            arrays = {n: Value.make(v, x._backend) for n, v in named.items() if hasattr(v, "shape")}
            numbers: Any = tuple((n, v) for n, v in named.items() if n not in arrays)  # what functions take
            draw = Draw(name, x.raw.shape, x.raw.dtype, numbers, tuple(arrays), generator=generator)
            return inplace(table.copy, x, WATCHERS.recorder.host_draw(draw, *arrays.values()))
        tracked = MODE.enabled and x.requires_grad  # the overwritten values get a gradient of zeros
        host = x.raw if isinstance(x.raw, np.ndarray) else np.empty(x.raw.shape, x.raw.dtype)
        host = np.empty_like(host) if tracked else host
        if x._backend.own is not x._backend:
            named = {n: x._backend.to_host(v) if hasattr(v, "shape") else v for n, v in named.items()}
        function(generator, out=host, **named)
        if tracked:
            return inplace(table.copy, x, Value.make(x._backend.from_host(host, x.device), x._backend))
        if host is not x.raw:
            x.raw[...] = x._backend.from_host(host, x.device)
    x._counter()[0] += 1
    return x


_PARAMETERS = {
    "uniform": ("low", "high"),
    "normal": ("mean", "std"),
    "exponential": ("lambd",),
    "geometric": ("p",),
    "cauchy": ("median", "sigma"),
    "log_normal": ("mean", "std"),
}


def draw_multinomial(x: Tensor, num_samples: int, replacement: bool, generator: Generator | None) -> Tensor:
    """Draw indices with the probabilities of each row (torch.multinomial)."""
    if WATCHERS.recorder is not None:
        check_multinomial(x.raw, num_samples, replacement)
        numbers = (("num_samples", num_samples), ("replacement", replacement))
        shape = (*x.raw.shape[:-1], num_samples)
        draw = Draw("multinomial", shape, np.dtype(np.int64), numbers, ("probs",), generator=generator)
        drawn: Tensor = WATCHERS.recorder.host_draw(draw, x.detach())
        return drawn
    host = x._backend.to_host(x.raw)
    return beside(x, wrap(random.multinomial(generator, host, num_samples, replacement), x.device))


def draw_from(
    name: str, parameters: Mapping[str, Tensor], like: Tensor, generator: Generator | None = None
) -> Tensor:
    """Draw with a function in ``draws.BROADCAST``, whose parameters are tensors; they carry no gradient.

    The result has the dtype and device of ``like``, and the shape that the parameters broadcast to.
    """
    shape = np.broadcast_shapes(*(x.raw.shape for x in parameters.values()))
    if any(isinstance(x.raw, Aval) for x in parameters.values()):
        return like.new_empty(shape)
    draw = Draw(name, shape, like.raw.dtype, (), BROADCAST[name], generator=generator)
    if WATCHERS.recorder is not None:
        drawn: Tensor = WATCHERS.recorder.host_draw(draw, *(parameters[n].detach() for n in draw.arrays))
        return drawn
    hosts = (x._backend.to_host(x.raw) for n in draw.arrays for x in (parameters[n],))
    return beside(like, wrap(draw(*hosts), like.device))
