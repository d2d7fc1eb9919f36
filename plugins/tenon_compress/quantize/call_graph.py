"""The call graph of a model's layers: which layer reads the output of which, read off a captured run.

A layer is a module without children. Its output is read by the layers that it is an argument of, and by any
op that runs outside of layers. Each call is a node of its own, as one ReLU may serve many layers: the first
call of a layer has its path as key, the n-th ``path#n``. ReLUs, max pools and views that run outside of
layers are nodes too, with the keys ``#n``. The reader "" is anything else: another op, a hook of a module, or
the output of the model.

Hooks note where in the captured graph a layer begins and ends, and with which values.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tenon import Tensor, no_grad
from tenon.errors import QuantizationError, TenonError
from tenon.extend import CapturedGraph, Nested, Node, Ref, capture, captured_values, pytree
from tenon.nn.module import Module
from tenon.ops import max_pool, relu
from tenon_compress.receipt import Example, call_of, evaluating


@dataclass(frozen=True, slots=True)
class _Event:
    """What a hook has seen: a layer that begins or ends, or (without a path) values that a hook can see."""

    #: The number of nodes of the graph before it.
    position: int
    path: str | None
    begins: bool
    values: tuple[Ref, ...]
    #: The number of axes of the last value.
    rank: int


class CallGraph:
    """How often each layer was called and which nodes read its output; paths are those of
    ``named_modules``."""

    def __init__(self, model: Module, example: Example) -> None:
        self.layers = {path: module for path, module in model.named_modules() if not module._modules}
        self.calls: Counter[str] = Counter()
        #: The number of axes of a layer's result.
        self.ranks: dict[str, int] = {}
        #: The module or op of each node (Any: code that reads one knows which), and the readers of its
        #: result.
        self.nodes: dict[str, Any] = {}
        self.readers: dict[str, list[str]] = {path: [] for path in self.layers}
        #: The node that computed a value.
        self._makers: dict[Ref, str] = {}
        self._inside = False
        args, kwargs = call_of(example)
        hooked = [path for path, module in model.named_modules() if _hooked(module)]
        with running(model, 0):
            graph, events = _captured(model, args, kwargs, hooked)
        pending = iter([*events, None])
        event = next(pending)
        for position, node in enumerate(graph.nodes):
            while event is not None and event.position <= position:
                self._enter(event)
                event = next(pending)
            if node.kind == "call" and not self._inside:
                self._run(node)
        while event is not None:
            self._enter(event)
            event = next(pending)
        self._read(graph.outputs, "")

    def _run(self, node: Node) -> None:
        """Add an op that ran outside of layers: a reader, and a node if it passes values on."""
        passes = node.op is relu or node.op is max_pool or node.op.view
        key = self._node(f"#{len(self.nodes)}", node.op) if passes else ""
        self._read(node.refs, key)
        if passes and len(node.avals) == 1 and node.avals[0].dtype == node.refs[0].aval.dtype:
            self._makers[node.out()] = key

    def _enter(self, event: _Event) -> None:
        """Follow a hook: values are read, or made by a layer."""
        if event.path is None:
            self._read(event.values, "")
        elif event.begins:
            self.calls[event.path] += 1
            self._read(event.values, self._node(self._called(event.path), self.layers[event.path]))
            self._inside = True
        else:
            self._inside = False
            self._makers.update(dict.fromkeys(event.values, self._called(event.path)))
            self.ranks[event.path] = event.rank

    def _node(self, key: str, target: object) -> str:
        self.nodes[key] = target
        self.readers[key] = []
        return key

    def _read(self, values: Iterable[Ref], reader: str) -> None:
        for value in values:
            if value in self._makers:
                self.readers[self._makers[value]].append(reader)

    def _called(self, path: str) -> str:
        """Return the node of the last call of a layer."""
        return path if self.calls[path] < 2 else f"{path}#{self.calls[path]}"

    def only_reader_of(self, node: str) -> str:
        """Return the only reader of the output of ``node``; "" if there is none, or several."""
        readers = self.readers[node]
        return readers[0] if len(readers) == 1 else ""

    def called_once(self, node: str) -> bool:
        """Whether ``node`` is the only call of a layer."""
        return self.calls[node] == 1


def _captured(
    model: Module, args: Nested, kwargs: Nested, hooked: Collection[str]
) -> tuple[CapturedGraph, list[_Event]]:
    """Capture a run of ``model``, or of a copy on the CPU, with the events of its layers in order."""
    if any(tensor.device.type != "cpu" for tensor in (*model.parameters(), *model.buffers())):
        model = copy.deepcopy(model).cpu()
        args, kwargs = pytree.tree_map(lambda x: x.cpu() if isinstance(x, Tensor) else x, (args, kwargs))
    events: list[tuple[CapturedGraph, _Event]] = []

    def note(path: str | None, begins: bool, nest: Nested) -> None:
        tensors = [leaf for leaf in pytree.tree_leaves(nest) if isinstance(leaf, Tensor)]
        found = captured_values(tensors)
        if found is not None:
            graph, values = found
            rank = tensors[-1].dim() if tensors else 0
            events.append((graph, _Event(len(graph.nodes), path, begins, values, rank)))

    modules = dict(model.named_modules())
    places: list[tuple[str | None, Module]] = [(p, m) for p, m in modules.items() if not m._modules]
    places += [(None, modules[path]) for path in hooked]
    handles: list[Any] = []  # of hooks
    for path, module in places:
        handles += (
            module.register_forward_pre_hook(
                lambda _, args, kwargs, path=path: note(path, True, (args, kwargs)), with_kwargs=True
            ),
            module.register_forward_hook(lambda _, args, output, path=path: note(path, False, output)),
        )
    try:
        graph = capture(model, *args, kwargs=kwargs, as_run=True)
    finally:
        for handle in handles:
            handle.remove()
    return graph, [event for captured, event in events if captured is graph]


def _hooked(module: Module) -> bool:
    return bool(module._forward_pre_hooks or module._forward_hooks)


@contextmanager
def running(model: Module, number: int) -> Iterator[None]:
    """Run ``model`` inside in evaluation mode without gradients; errors name ``calibration[number]``."""
    called: list[str] = []
    handles = [
        module.register_forward_pre_hook(lambda *_, path=path: called.append(path))
        for path, module in model.named_modules()
        if not module._modules
    ]
    try:
        with evaluating(model), no_grad():
            yield
    except (TenonError, ValueError, TypeError) as error:
        where = f" at '{called[-1]}'" if called else ""
        raise QuantizationError(
            f"calibration[{number}] cannot be run by this {type(model).__name__}{where}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
