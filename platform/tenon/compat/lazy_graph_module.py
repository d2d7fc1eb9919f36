"""PyTorch's module ``torch.fx._lazy_graph_module``: graph modules that are compiled at their first call.

Here a ``GraphModule`` is compiled when its graph is set, which takes less than PyTorch saves by waiting;
the switch has no effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tenon.fx.graph_module import GraphModule

__all__ = ["_make_graph_module", "_use_lazy_graph_module"]


@contextlib.contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """Within a block, have graph modules compiled at their first call: no effect."""
    yield


def _make_graph_module(
    # of any type
    *args: Any,
    graph_module_cls: type[GraphModule] | None = None,
    # of any type
    **kwargs: Any,
) -> GraphModule:
    """Return ``GraphModule(*args, **kwargs)``, or one of the class ``graph_module_cls``."""
    return (graph_module_cls or GraphModule)(*args, **kwargs)
