"""Passes: rewrites of a graph, one small file each: ``name(graph) -> None``.

``default`` returns the built-in ones in order, with those of plugins (``tenon_graph_passes``) between
``SIMPLIFY`` and ``LOWER``. A pass may assume a verified graph and must leave one. Passes that depend on the
backend take it as a second argument, which ``ready`` binds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tenon.graph.graph import Graph
from tenon.graph.passes.canonicalise import canonicalise
from tenon.graph.passes.common_subexpr import common_subexpr
from tenon.graph.passes.constant_fold import constant_fold
from tenon.graph.passes.dead_code import dead_code
from tenon.graph.passes.decompose import decompose
from tenon.graph.passes.epilogue import epilogue
from tenon.graph.passes.fuse import fuse
from tenon.graph.passes.gate_before_unpool import gate_before_unpool
from tenon.graph.passes.layout import layout
from tenon.graph.passes.relu_after_pool import relu_after_pool
from tenon.graph.passes.schedule import schedule
from tenon.graph.passes.sum_before_unpool import sum_before_unpool
from tenon.kernels.backend import Backend
from tenon.plugins.manager import host

Pass = Callable[[Graph], None]

#: Passes before those of plugins.
SIMPLIFY: tuple[Callable[..., None], ...] = (
    dead_code,
    canonicalise,
    constant_fold,
    common_subexpr,
    gate_before_unpool,
    relu_after_pool,
    sum_before_unpool,
)
#: Passes after those of plugins.
LOWER: tuple[Callable[..., None], ...] = (
    dead_code,
    epilogue,
    layout,
    decompose,
    fuse,
    dead_code,
    schedule,
)
DEFAULT = (*SIMPLIFY, *LOWER)
_ASK_BACKEND = frozenset({constant_fold, epilogue, layout, decompose, fuse})


def default(backend: Backend) -> list[Pass]:
    """Return the built-in passes and those of plugins, ready to run for ``backend``."""
    plugin_passes = [p for group in host().hook.tenon_graph_passes(target=backend.name) for p in group or ()]
    added = [functools.partial(checked, p) for p in plugin_passes]
    return [*(ready(p, backend) for p in SIMPLIFY), *added, *(ready(p, backend) for p in LOWER)]


def ready(transform: Callable[..., None], backend: Backend) -> Pass:
    """Return a built-in pass as a function of the graph only."""
    return functools.partial(transform, backend=backend) if transform in _ASK_BACKEND else transform


def checked(transform: Pass, graph: Graph) -> None:
    """Run a plugin's pass and verify the graph afterwards."""
    run(graph, [transform])


def run(graph: Graph, passes: Sequence[Pass]) -> None:
    """Apply ``passes`` in turn; GraphError that names the pass after which the graph is not consistent."""
    for transform in passes:
        transform(graph)
        try:
            graph.verify()
        except Exception as error:
            error.add_note(f"after the pass {getattr(transform, '__name__', transform)!r}")
            raise
