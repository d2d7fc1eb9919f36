"""The autograd modes of a thread: whether ops are taped, inference mode, and others.

``tensors/autograd/grad_mode.py`` has the context managers that set them, as ``no_grad``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

#: The sentinel version counter of inference tensors, whose versions are not tracked.
UNCOUNTED: list[int] = [0]


class _Mode(threading.local):
    enabled: bool = True
    inference: bool = False
    #: Whether a view modified in place shows its own op in ``grad_fn``, not ``as_strided``.
    replay: bool = False
    multithreading: bool = True
    #: Whether forward-mode tangents propagate; not inside a custom Function's ``forward``.
    forward: bool = True
    #: Whether the running backward pass computes forward-mode tangents: ``autograd/tangent_taping.py``.
    computes_tangents: bool = False
    #: ``casts(policies, function, args, kwargs)`` calls ``function`` with arguments cast by autocast; None
    #: if that is off. See ``tensors/precision.py``.
    casts: Callable[..., Any] | None = None
    #: The initial version counter of new tensors.
    counter: list[int] | None = None

    def set(self, enabled: bool, inference: bool) -> None:
        """Set both flags, and the version counter of new tensors with them."""
        self.enabled, self.inference = enabled, inference
        self.counter = UNCOUNTED if inference else None


MODE = _Mode()
