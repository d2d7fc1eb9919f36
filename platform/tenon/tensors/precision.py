"""Autocast policies of functions: the protocol between ``tenon.amp`` and functions made of several ops.

Autocast chooses dtypes per op. A function of several ops that is one op in PyTorch declares with ``runs_in``
how its arguments are cast; its ops are then not cast again. Without autocast, that costs a call one read of a
thread-local variable.

``tenon.amp.state`` sets ``MODE.casts`` and ``PRECISION``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tenon.engine.grad_mode import MODE

Function = TypeVar("Function", bound=Callable[..., object])


class _Precision(threading.local):
    #: This thread's autocast as ``tenon.compile`` sees it: ``key``, ``disabled()`` and ``around(function)``.
    casting: Any = None


PRECISION = _Precision()

#: "lower": cast to autocast's dtype. "float32": cast 16-bit floats to float32. "widest": cast to the widest
#: dtype of the arguments. "given": cast neither the arguments nor those of the ops inside. "usual": cast
#: nothing, but each op inside by its own policy, as in functions without ``runs_in``.
POLICIES = ("lower", "float32", "widest", "given", "usual")


def runs_in(policy: str, cuda: str | None = None) -> Callable[[Function], Function]:
    """Cast the tensor arguments of a function by ``policy`` (one of ``POLICIES``) while autocast is on.

    ``cuda`` is the policy for tensors on a GPU, where PyTorch's differs.
    """
    policies = {"cpu": policy, "cuda": policy if cuda is None else cuda}

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def chosen(*args: object, **kwargs: object) -> object:
            call = MODE.casts
            if call is None:
                return function(*args, **kwargs)
            return call(policies, function, args, kwargs)

        return cast(Function, chosen)

    return decorate
