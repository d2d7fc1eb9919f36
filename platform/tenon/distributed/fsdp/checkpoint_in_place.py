"""``checkpoint(module)``: compute a module's activations again in backward, without a wrapper around it.

Names of parameters, keys of ``state_dict`` and the class of the module stay as they are.
"""

from __future__ import annotations

import functools
from typing import Any

from tenon.autograd.checkpoint import checkpoint as checkpointed
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, UnsupportedError
from tenon.nn.module import Module

__all__ = ["checkpoint"]

_OPTIONS = frozenset(["context_fn", "debug", "determinism_check", "early_stop", "preserve_rng_state"])


def checkpoint(
    module: Module,
    *,
    use_reentrant: bool = False,
    **options: Any,  # those of ``checkpoint``, of several types
) -> Module:
    """Make ``module`` call its ``forward`` by ``tenon.utils.checkpoint.checkpoint``, in place; return it.

    ``options`` are those of ``checkpoint`` with ``use_reentrant=False``. Call it before ``fully_shard``, or
    after. Calling it again replaces the options. The module itself cannot be saved then, only its state.

    Raises ``UnsupportedError`` for ``use_reentrant=True``, and ``ArgumentError`` for other options.
    Source: torch.distributed._composable.checkpoint.

    >>> import tenon
    >>> from tenon import nn
    >>> block = checkpoint(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    >>> block(tenon.ones(1, 2)).sum().backward()
    >>> list(block.state_dict())
    ['0.weight', '0.bias']
    """
    if use_reentrant:
        raise UnsupportedError(
            "use_reentrant=True is not supported in composable checkpoint. Call"
            " tenon.utils.checkpoint.checkpoint in the model's forward instead."
        )
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise ArgumentError(f"Unexpected keyword arguments: {','.join(unknown)}")
    # Of the instance: a partial object, as copies of the module get one of their own.
    module.__dict__["forward"] = functools.partial(_forward, module, options)
    return module


def _forward(
    module: Module,
    options: dict[str, Any],  # as above
    *args: Nested,
    **kwargs: Nested,
) -> Nested:
    forward = functools.partial(type(module).forward, module)
    return checkpointed(forward, *args, use_reentrant=False, **options, **kwargs)
