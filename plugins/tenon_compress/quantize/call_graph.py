"""The call graph of a model's layers: which layer reads the output of which, found by running the model once.

A layer is a module without children. Its output is read by the layers that it is an argument of, and by any
op that runs outside of layers. Each call is a node of its own, as one ReLU may serve many layers: the first
call of a layer has its path as key, the n-th ``path#n``. ReLUs, max pools and views that run outside of
layers are nodes too, with the keys ``#n``. The reader "" is anything else: another op, a hook of a module, or
the output of the model. An in-place ReLU is recognized by its input, which holds the result afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenon import Tensor, no_grad
from tenon.errors import QuantizationError, TenonError
from tenon.extend import Array, Attrs, Nested, Op, Operand, op_interceptors, pytree
from tenon.nn.module import Module
from tenon.ops import max_pool, relu
from tenon_compress.receipt import Example, call_of, evaluating


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
        #: The node that computed an array, by its id; arrays are kept alive so that ids are unique.
        self._makers: dict[int, str] = {}
        self._kept_alive: list[Array] = []
        #: Of rectifiers the node, a copy of the input and the result, by the id of the input's array.
        self._rectified: dict[int, tuple[str, Array, Array]] = {}
        self._inside = False
        args, kwargs = call_of(example)
        hooked = [module for module in model.modules() if _hooked(module)]
        handles = [h for path, module in self.layers.items() for h in self._watch(path, module)]
        handles += [h for module in hooked for h in self._expose(module)]
        op_interceptors.push(self)
        try:
            with running(model, 0):
                self._read(model(*args, **kwargs), "")
        finally:
            op_interceptors.pop(self)
            for handle in handles:
                handle.remove()
            self._kept_alive.clear()
            self._rectified.clear()

    def run(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operand:
        """Run an op; outside of layers it is a reader."""
        if self._inside:
            return op_interceptors.below(self)(op, args, attrs)
        passes = op is relu or op is max_pool or op.view
        node = self._node(f"#{len(self.nodes)}", op) if passes else ""
        self._read(args, node)
        before = args[0].raw.copy() if op is relu and id(args[0].raw) in self._makers else None
        result = op_interceptors.below(self)(op, args, attrs)
        if before is not None:
            self._rectified[id(args[0].raw)] = node, before, result.raw
        if passes and isinstance(result, Tensor) and result.dtype is args[0].dtype:
            self._set_maker(node, result)
        return result

    def _node(self, key: str, target: Module | Op) -> str:
        self.nodes[key] = target
        self.readers[key] = []
        return key

    def _read(self, nest: Nested, reader: str) -> None:
        for tensor in pytree.tree_leaves(nest):
            if isinstance(tensor, Tensor) and id(tensor.raw) in self._makers:
                self._update_maker(tensor.raw)
                self.readers[self._makers[id(tensor.raw)]].append(reader)

    def _update_maker(self, array: Array) -> None:
        """Set the maker of ``array`` to a rectifier that has written into it since."""
        if id(array) in self._rectified:
            node, before, result = self._rectified.pop(id(array))
            if not bool((array == before).all()) and bool((array == result).all()):
                self._makers[id(array)] = node

    def _set_maker(self, node: str, tensor: Tensor) -> None:
        self._kept_alive.append(tensor.raw)
        self._makers[id(tensor.raw)] = node

    def _watch(self, path: str, module: Module) -> tuple[Any, Any]:  # two handles
        def enter(module: Module, args: Nested, kwargs: Nested) -> None:
            self.calls[path] += 1
            self._read((args, kwargs), self._node(self._called(path), module))
            self._inside = True

        def leave(module: Module, args: Nested, output: Nested) -> None:
            self._inside = False
            for tensor in pytree.tree_leaves(output):
                if isinstance(tensor, Tensor):
                    self._set_maker(self._called(path), tensor)
                    self.ranks[path] = tensor.dim()

        return (
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave),
        )

    def _expose(self, module: Module) -> tuple[Any, Any]:  # two handles
        """Count the hooks of ``module`` as readers of its inputs and outputs."""
        return (
            module.register_forward_pre_hook(
                lambda _, args, kwargs: self._read((args, kwargs), ""), with_kwargs=True
            ),
            module.register_forward_hook(lambda _, args, output: self._read(output, "")),
        )

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
