"""What flows from layer to layer: found by running the model once and watching.

A layer is a module without children. A tensor that a layer gives is read by the layers it is an argument of,
and by any op that runs outside of layers; the latter, and being a result of the model, count as the reader
"".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenon.compress.receipt import call_of, evaluating
from tenon.core.grad_mode import no_grad
from tenon.core.interceptor import SLOT
from tenon.core.pytree import tree_leaves
from tenon.core.tensor import Tensor
from tenon.errors import QuantizationError, TenonError
from tenon.nn.module import Module


class Flow:
    """How often each layer ran, and who read what it gave; paths as ``named_modules`` has them."""

    def __init__(self, model: Module, example: Any) -> None:
        self.layers = {path: module for path, module in model.named_modules() if not module._modules}
        self.calls: Counter[str] = Counter()
        #: How many axes a layer's result has.
        self.ranks: dict[str, int] = {}
        self.readers: dict[str, list[str]] = {path: [] for path in self.layers}
        #: By the array, which a detached tensor shares; arrays are kept so that no id is given twice.
        self._makers: dict[int, str] = {}
        self._kept: list[Any] = []
        self._inside = False
        args, kwargs = call_of(example)
        handles = [h for path, module in self.layers.items() for h in self._watch(path, module)]
        SLOT.push(self)
        try:
            with running(model, 0):
                self._read(model(*args, **kwargs), "")
        finally:
            SLOT.pop(self)
            for handle in handles:
                handle.remove()
            self._kept.clear()

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """An op: outside of layers it is a reader."""
        if not self._inside:
            self._read(args, "")
        return SLOT.below(self)(op, args, attrs)

    def _read(self, nest: Any, reader: str) -> None:
        for tensor in tree_leaves(nest):
            if isinstance(tensor, Tensor) and id(tensor.raw) in self._makers:
                self.readers[self._makers[id(tensor.raw)]].append(reader)

    def _watch(self, path: str, module: Module) -> tuple[Any, Any]:
        def enter(module: Any, args: Any, kwargs: Any) -> None:
            self._read((args, kwargs), path)
            self._inside = True

        def leave(module: Any, args: Any, output: Any) -> None:
            self._inside = False
            self.calls[path] += 1
            for tensor in tree_leaves(output):
                if isinstance(tensor, Tensor):
                    self._kept.append(tensor.raw)
                    self._makers[id(tensor.raw)], self.ranks[path] = path, tensor.dim()

        return (
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave),
        )

    def next_of(self, path: str) -> str:
        """The one layer that reads what ``path`` gives, if there is one and both run once; else ""."""
        readers = self.readers[path]
        once = len(readers) == 1 and readers[0] and self.calls[path] == 1 == self.calls[readers[0]]
        return readers[0] if once else ""


@contextmanager
def running(model: Module, number: int) -> Iterator[None]:
    """The model in evaluation mode without gradients; a failure is one of ``calibration[number]``."""
    at: list[str] = []
    handles = [
        module.register_forward_pre_hook(lambda *_, path=path: at.append(path))
        for path, module in model.named_modules()
        if not module._modules
    ]
    try:
        with evaluating(model), no_grad():
            yield
    except (TenonError, ValueError, TypeError) as error:
        where = f" at '{at[-1]}'" if at else ""
        raise QuantizationError(
            f"calibration[{number}] cannot be run by this {type(model).__name__}{where}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
