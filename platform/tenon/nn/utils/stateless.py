"""PyTorch's old path of ``functional_call``; new code uses ``tenon.func.functional_call``."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tenon.engine.types import Forwarded
from tenon.errors import UnsupportedError
from tenon.nn.functional_call import functional_call as _call
from tenon.nn.functional_call import replaced
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.types import Nested


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Nested = None,
    kwargs: dict[str, Forwarded] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Nested:
    """Deprecated form of ``tenon.func.functional_call``."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a "
        "future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


#: ``functional_call`` without the warning, as PyTorch's own code calls it.
_functional_call = _call


def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> AbstractContextManager[None]:
    """Context manager that replaces tensors of ``module``; tensors that it assigns meanwhile are put into the
    dict."""
    if stack_weights:
        raise UnsupportedError(
            "_reparametrize_module: stack_weights is for traces, which are not made here; leave it out."
        )
    return replaced(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict)
