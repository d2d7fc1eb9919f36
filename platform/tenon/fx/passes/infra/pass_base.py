"""``PassBase``: a pass over a graph with pre- and postconditions."""

from __future__ import annotations

import abc
from typing import NamedTuple

from tenon.fx.graph_module import GraphModule
from tenon.nn.module import Module

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The result of a pass: the module, and whether the pass has changed it."""

    graph_module: Module
    modified: bool


class PassBase(abc.ABC):
    """Base of passes: a subclass defines ``call``; ``requires`` and ``ensures`` check its pre- and
    postcondition.

    >>> class Lint(PassBase):
    ...     def call(self, graph_module):
    ...         graph_module.graph.lint()
    ...         return PassResult(graph_module, False)
    >>> import tenon
    >>> Lint()(tenon.fx.symbolic_trace(lambda x: x + 1)).modified
    False
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass with its checks."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Change ``graph_module`` and return it, or a new module; None leaves the result to the pass
        manager."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 - optional
        """Raise an error if the pass cannot run on ``graph_module``."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027 - optional
        """Raise an error if ``graph_module`` is not as it should be after the pass."""
