"""The tape: one ``Node`` per taped op, holding exactly what its gradient rules declared.

``edges`` says where each input's gradient goes: ``(node, output index)``, ``(leaf tensor, -1)``, or None.
``saved`` mirrors the op's arguments: a ``Tensor`` for what the rule reads, an aval (or a small array)
for what it only asks the shape of. Saved tensors carry a version; ``backward`` refuses values that
were modified in place since.

This file is hot: ``record`` runs once per taped op.
"""

from __future__ import annotations

import itertools
from typing import Any

from tenon.core import scopes
from tenon.core.aval import Aval
from tenon.core.value import Value
from tenon.errors import FreedGraphError, ModifiedValueError

_sequence = itertools.count().__next__
_SMALL = 512  # bytes; below this an array is kept instead of an Aval: making an Aval costs 0.25 us


class Node:
    """Gradient of one executed op. Its repr is torch's: ``<AddBackward0 object at ...>``."""

    __slots__ = (
        "__dict__", "__weakref__", "attrs", "backend", "edges", "op", "out", "out_counter", "saved", "seq", "versions",
        "watched",
    )  # fmt: skip

    # Rare, so kept in __dict__ when set.
    out_version: int = 0
    hooks: dict[int, dict[int, Any]] | None = None  # output index -> {id: hook on that output's gradient}
    retained: dict[int, Any] | None = None  # output index -> weakref of a tensor with retain_grad
    node_hooks: dict[int, Any] | None = None
    node_prehooks: dict[int, Any] | None = None
    residuals: tuple[Any, ...] = ()
    module: Any = None
    output_avals: Any = None
    annotation: str = ""

    op: Any
    backend: Any
    edges: tuple[Any, ...]
    saved: tuple[Any, ...] | None
    versions: dict[int, int] | None
    attrs: dict[str, Any]
    seq: int
    #: Somebody has hooks here, retains this gradient or collects it: the sweep looks closer.
    watched: bool
    out: Any
    out_counter: list[int] | None

    def name(self) -> str:
        """torch's name of this node, as printed in ``grad_fn=<...>``."""
        return str(self.op.torch_name(self.saved or (), self.attrs))

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """torch's view of the graph: ``(node, output index)`` per input, ``(None, 0)`` where nothing flows."""
        return tuple(
            (None, 0) if e is None else (accumulator_of(e[0]), 0) if e[1] < 0 else (e[0], e[1]) for e in self.edges
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary that the user may fill."""
        return self.__dict__.setdefault("_metadata", {})

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran; it may return new ``grad_inputs``."""
        from tenon.core.hooks import new_hooks, register_in

        if self.node_hooks is None:
            self.node_hooks = new_hooks()
            self.watched = True
        return register_in(self.node_hooks, hook)

    def register_prehook(self, hook: Any) -> Any:
        """Call ``hook(grad_outputs)`` before this node runs; it may return new ``grad_outputs``."""
        from tenon.core.hooks import new_hooks, register_in

        if self.node_prehooks is None:
            self.node_prehooks = new_hooks()
            self.watched = True
        return register_in(self.node_prehooks, hook)

    def values(self, as_tensors: bool) -> tuple[tuple[Any, ...], Any]:
        """Saved arguments and saved output, checked for in-place changes; arrays, or tensors with their history."""
        saved = self.saved
        if saved is None:
            raise FreedGraphError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
                f"you need to access saved tensors after calling backward. (op {self.op.name}{self._where()})"
            )
        versions = self.versions
        arguments = list(saved)
        for i, value in enumerate(saved):
            if isinstance(value, Value):
                counter = value._version_counter
                if counter is not None:
                    then = 0 if versions is None else versions.get(i, 0)
                    if counter[0] != then:
                        self._modified(value.raw, counter[0], then, "input")
                if not as_tensors:
                    arguments[i] = value.raw
        out = self.out
        if out is not None:
            counter = self.out_counter
            if counter is not None and counter[0] != self.out_version:
                self._modified(out, counter[0], self.out_version, "output")
            if as_tensors:
                out = self.output_tensor(out)
        return tuple(arguments), out

    def output_tensor(self, raw: Any) -> Any:
        """``raw``, this node's saved output, as a tensor whose history is this node."""
        tensor = Value.make(raw, self.backend)
        tensor._node, tensor._track = self, True
        return tensor

    def _modified(self, raw: Any, now: int, then: int, what: str) -> None:
        raise ModifiedValueError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"the {what} {list(raw.shape)} of {self.op.name}{self._where()} is at version {now}; expected version {then} "
            f"instead. Its gradient needs the value as it was: use the out-of-place form, or clone() before modifying it."
        )

    def _where(self) -> str:
        path = scopes.path_of(self.module)
        return f" in module {path}" if path else ""

    def release(self) -> None:
        """Drop saved values after their last use."""
        if self.op.saves or self.residuals:
            self.saved = None
            self.out = None
            if self.residuals:
                self.residuals = ()

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class AccumulateGrad:
    """torch's face of a leaf in ``next_functions``; ``variable`` is the leaf."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.next_functions: tuple[Any, ...] = ()

    def name(self) -> str:
        """torch's name of the accumulating node."""
        return "struct torch::autograd::AccumulateGrad"

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(*unused)`` after the leaf's gradient has been accumulated."""
        return self.variable.register_post_accumulate_grad_hook(lambda leaf: hook((), (leaf.grad,)))

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def accumulator_of(leaf: Any) -> AccumulateGrad:
    """The one ``AccumulateGrad`` of ``leaf``."""
    found: AccumulateGrad | None = leaf.__dict__.get("_accumulator")
    if found is None:
        found = leaf.__dict__["_accumulator"] = AccumulateGrad(leaf)
    return found


_new_node = Node.__new__


def record(op: Any, backend: Any, args: tuple[Any, ...], raw: list[Any], attrs: dict[str, Any]) -> Node:
    """A node for one executed op; its outputs still have to point to it."""
    edges: list[Any] = []
    saved: list[Any] = []
    versions: dict[int, int] | None = None
    mask = op.save_mask
    last = len(mask) - 1
    for i, a in enumerate(args):
        if isinstance(a, Value):
            if a._track:
                if a._view is not None:
                    a._refresh()
                n = a._node
                edges.append((a, -1) if n is None else (n, a._index))
            else:
                edges.append(None)
            if mask[i if i < last else last]:
                saved.append(a)
                counter = a._version_counter
                if counter is not None and counter[0]:
                    if versions is None:
                        versions = {}
                    versions[i] = counter[0]
            else:
                r = raw[i]
                saved.append(r if r.nbytes < _SMALL else Aval(r.shape, r.dtype))
        else:
            edges.append(None)
            saved.append(a)
    node = _new_node(Node)
    node.op = op
    node.backend = backend
    node.attrs = attrs
    node.edges = tuple(edges)
    node.saved = tuple(saved)
    node.versions = versions
    node.seq = _sequence()
    node.out = None
    node.out_counter = None
    node.watched = False
    if scopes.current is not None:
        node.module = scopes.current
    return node
