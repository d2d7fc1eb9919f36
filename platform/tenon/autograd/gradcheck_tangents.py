"""Further checks of forward mode for ``gradcheck``: undefined tangents, and batched tangents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.autograd import forward_ad
from tenon.autograd.gradcheck_jacobians import CheckedFunction, directions, flatten, unflatten
from tenon.engine.op import table
from tenon.errors import GradcheckError
from tenon.tensors.creation.factories import zeros_like
from tenon.tensors.tensor import Tensor


def check_undefined_tangents(func: CheckedFunction, inputs: Sequence[Tensor], active: list[int]) -> None:
    """Check that omitting the tangent of an input equals passing zeros, for each input in turn."""
    with forward_ad.dual_level():
        duals = list(inputs)
        for i in active:
            step = unflatten(directions(inputs[i], i)[0], inputs[i])
            duals[i] = forward_ad.make_dual(inputs[i].detach(), step)
        for i in active:
            x, own = inputs[i].detach(), duals[i]
            duals[i] = forward_ad.make_dual(x, zeros_like(x))
            with_zeros = _tangents(func(*duals))
            duals[i] = x
            without = _tangents(func(*duals))
            duals[i] = own
            for position, (a, b) in enumerate(zip(with_zeros, without, strict=True)):
                one, other = (0.0 if t is None else flatten(t) for t in (a, b))
                if not np.allclose(one, other):
                    raise GradcheckError(
                        "Expected all undefined forward gradients to be treated as zeros, but the tangent of"
                        f" output {position} differs when input {i} has none."
                    )


def check_batched_tangents(func: CheckedFunction, inputs: Sequence[Tensor], active: list[int]) -> None:
    """Check that batched tangents (``vmap``) return what separate ones return."""
    from tenon.compat._vmap_internals import vmap  # it imports this package

    for i in active:

        def jvp(tangent: Tensor, i: int = i) -> tuple[Tensor, ...]:
            with forward_ad.dual_level():
                duals = list(inputs)
                duals[i] = forward_ad.make_dual(inputs[i].detach(), tangent)
                pairs = [forward_ad.unpack_dual(o) for o in _outputs(func(*duals))]
                return tuple(zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs)

        steps = [unflatten(directions(inputs[i], i + k)[0], inputs[i]) for k in (0, 1000)]
        singly = [jvp(step) for step in steps]
        try:
            together = vmap(jvp)(table.stack(*steps, axis=0))
        except RuntimeError as error:
            raise GradcheckError(
                f"While computing batched gradients, got: {error}\n\ngradcheck failed while testing batched"
                " forward gradients (check_batched_forward_grad=True): func must work inside of func.vmap."
            ) from error
        for position, batch in enumerate(together):
            for k, single in enumerate(singly):
                if not np.allclose(flatten(batch[k]), flatten(single[position])):
                    raise GradcheckError(
                        f"For output {position} and input {i}: the tangents of a batch differ from those"
                        f" computed one by one.\nin the batch:{batch[k]}\nalone:{single[position]}"
                    )


def _outputs(result: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Return the floating-point and complex tensors that a function returned."""
    several = result if isinstance(result, (tuple, list)) else (result,)
    return [o for o in several if isinstance(o, Tensor) and o.raw.dtype.kind in "fcV"]


def _tangents(result: Tensor | Sequence[Tensor]) -> list[Tensor | None]:
    return [forward_ad.unpack_dual(o).tangent for o in _outputs(result)]
