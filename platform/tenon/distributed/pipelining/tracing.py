"""Capture a model as a graph of calls of its modules, with the points where it is split.

Only modules that contain a split point are traced into; every other one is a single call in the graph. So
what is inside of the others may be any Python code, keeps its train and eval mode, and may checkpoint or
cast. The example inputs run through the model while it is traced: code between the modules may branch on
shapes, and stages know which values are tensors.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tenon.amp.state import get_autocast_dtype, is_autocast_enabled
from tenon.autograd.checkpoint import checkpoint
from tenon.distributed.fsdp.fully_shard import FSDPModule
from tenon.distributed.pipelining.split_points import SplitPoint, listening, pipe_split
from tenon.distributed.replicas.data_parallel import DistributedDataParallel
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, CaptureError
from tenon.fx import Graph, Node, Tracer
from tenon.fx.node import Argument, Target, map_arg
from tenon.fx.proxy import TraceError
from tenon.fx.tracer_base import Traced
from tenon.nn.module import Module
from tenon.random import default_generator, fork_rng
from tenon.tensors.autograd.grad_mode import enable_grad, is_grad_enabled, no_grad
from tenon.tensors.pytree import tree_iter, tree_map
from tenon.tensors.tensor import Tensor


@dataclass(slots=True)
class Capture:
    """A captured model.

    ``values`` are those of the nodes for the example inputs, ``constants`` tensors that the code has made, by
    the names that the graph reads them from.
    """

    graph: Graph
    values: dict[Node, Any]  # of any types
    constants: dict[str, Tensor]

    def is_tensor(self, node: Node) -> bool:
        """Whether the node's value is a tensor; so it counts if a split policy has added the node."""
        return node not in self.values or isinstance(self.values[node], Tensor)


def capture(
    module: Module,
    args: tuple[Nested, ...],
    kwargs: dict[str, Nested],
    spec: dict[str, SplitPoint] | None,
    *,
    to_layers: bool,
) -> Capture:
    """The graph of ``module`` for example arguments; with ``to_layers`` traced down to tenon's layers.

    Without ``spec`` the model runs once more, to find the calls of ``pipe_split``. Its buffers and the
    random generator are as before afterwards.
    """
    if any(p.device.type == "meta" for p in module.parameters()):
        args, kwargs = tree_map(_to_meta, (args, kwargs))
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    with _undisturbed(module):
        opened = {""}
        if spec is not None:
            opened.update(ancestor for path in spec for ancestor in _ancestors(path))
        elif not to_layers:
            opened |= _paths_that_split(module, args, kwargs)
        for path in opened:
            _check_opened(module.get_submodule(path), path)
        with enable_grad():
            tracer = _StageTracer(spec or {}, opened, bound, to_layers)
        try:
            with listening(tracer.split), enable_grad():
                graph = tracer.trace(module)
                tracer.check_random()
        except (TraceError, NotImplementedError, TypeError, RuntimeError) as error:
            if tracer.evaluating:  # the model raised it
                raise
            raise CaptureError(
                f"pipeline: the code of {type(module).__name__} between its split points cannot be captured:"
                f" {error}\nMove it into a submodule that has no split point in it, which is called as a"
                " whole, or make the stages by hand: a module and a PipelineStage for each."
            ) from error
        finally:
            constants = tracer.take_constants(module)
    missing = sorted(set(spec or ()) - tracer.called)
    if missing:
        raise ArgumentError(
            f"split_spec: {', '.join(missing)} is not called by {type(module).__name__}.forward for these"
            " example inputs. Name modules that are."
        )
    return Capture(graph, tracer.values, constants)


class _StageTracer(Tracer):
    """Traces the modules in ``opened`` and computes the value of each node for the example inputs."""

    def __init__(
        self,
        spec: dict[str, SplitPoint],
        opened: set[str],
        bound: inspect.BoundArguments,
        to_layers: bool,
    ) -> None:
        super().__init__(autowrap_functions=(checkpoint,))
        self.proxy_buffer_attributes = True  # or a method of a buffer would be computed now
        self.values: dict[Node, Any] = {}  # of any types
        self.called: set[str] = set()
        """The modules with split points that have been called."""
        self.evaluating = False
        self._spec, self._opened, self._bound, self._to_layers = spec, opened, bound, to_layers
        self._examples: dict[str, Any] = {}  # of any types
        self._mode = _mode()
        self._random = default_generator.get_state()

    def split(self) -> None:
        """Record a split point, unless ``pipe_split`` is called inside of a module that is one call."""
        if not self.evaluating:
            self.create_node("call_function", pipe_split, (), {})

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is one call."""
        if self._to_layers:
            return super().is_leaf_module(m, module_qualified_name)
        return module_qualified_name not in self._opened

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],  # any function
        args: tuple[Any, ...],  # of any types
        kwargs: dict[str, Any],  # of any types
    ) -> Any:  # of any types
        """Record a call, with the split points of the module."""
        if self.evaluating:
            return forward(*args, **kwargs)
        with self._at(m):
            return super().call_module(m, forward, args, kwargs)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],  # of any types
        kwargs: dict[str, Any],  # of any types
        *rest: Any,  # of any types
    ) -> Any:  # of any types
        """Insert a node; the call of a module through ``checkpoint`` has the module's split points."""
        if target is not checkpoint or not isinstance(args[0], Module):
            return super().create_proxy(kind, target, args, kwargs, *rest)
        with self._at(args[0]):
            return super().create_proxy(kind, target, args, kwargs, *rest)

    @contextlib.contextmanager
    def _at(self, module: Module) -> Iterator[None]:
        """The call of ``module``, between its split points."""
        path = self.path_of_module(module)
        point = self._spec.get(path)
        self.called.add(path)
        if point is SplitPoint.BEGINNING:
            self.split()
        yield
        if point is SplitPoint.END:
            self.split()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:  # of any types
        """The value of an attribute; no proxies while values are computed."""
        return attr_val if self.evaluating else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],  # any function
        is_module: bool,
        concrete_args: object = None,
    ) -> tuple[Callable[..., Any], list[Any]]:  # of any types
        """A placeholder for each example argument; what has no tensor in it is a constant of the graph."""
        positional, keywords = [self.root], {}
        for name, parameter in self._bound.signature.parameters.items():
            if name not in self._bound.arguments:
                continue
            value = self._bound.arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += [self._placeholder(f"{name}_{i}", each) for i, each in enumerate(value)]
            elif parameter.kind is parameter.VAR_KEYWORD:
                keywords.update({key: self._placeholder(key, each) for key, each in value.items()})
            elif parameter.kind is parameter.KEYWORD_ONLY:
                keywords[name] = self._placeholder(name, value)
            else:
                positional.append(self._placeholder(name, value))
        return lambda: root_fn(*positional, **keywords), []

    def _placeholder(self, name: str, value: Any) -> Any:  # of any type
        self._examples[name] = value
        proxy = self.create_proxy("placeholder", name, (), {})
        return proxy if any(isinstance(leaf, Tensor) for leaf in tree_iter(value)) else value

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any | None = None,  # an annotation
    ) -> Node:
        """Insert a node, and compute its value."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        if _mode() != self._mode:
            raise TraceError(
                "it computes in a block of no_grad, enable_grad or autocast, which a stage would not be in"
            )
        if kind != "output" and target is not pipe_split:
            self.check_random()
            self.evaluating = True
            with no_grad():
                self.values[node] = self._value(node)
            self.evaluating = False
            self._random = default_generator.get_state()
        return node

    def check_random(self) -> None:
        """Raise TraceError if random numbers were drawn that are not the value of a node."""
        if not bool((default_generator.get_state() == self._random).all()):
            raise TraceError(
                "it draws random numbers from no argument of the model, which would be constants of the stage"
            )

    def _value(self, node: Node) -> Any:  # of any type
        args: Any = map_arg(node.args, lambda each: self.values[each])  # of any types
        kwargs: Any = map_arg(node.kwargs, lambda each: self.values[each])  # of any types
        target: Any = node.target  # a name or a function
        if node.op == "placeholder":
            return self._examples[target]
        if node.op == "get_attr":
            holder, _, last = target.rpartition(".")
            return getattr(self.root.get_submodule(holder), last)
        if node.op == "call_module":
            return self.root.get_submodule(target)(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        return target(*args, **kwargs)

    def to_bool(self, obj: Traced) -> bool:
        """The truth of what does not depend on the values of tensors."""
        value = self.values[obj.node]
        return super().to_bool(obj) if isinstance(value, Tensor) else bool(value)

    def iter(self, obj: Traced) -> Iterator[Any]:  # of proxies
        """The elements, of which the example has as many."""
        proxy: Any = obj  # whose operators are added to the class
        return iter([proxy[index] for index in range(len(self.values[obj.node]))])

    def take_constants(self, root: Module) -> dict[str, Tensor]:
        """Remove the tensors that tracing has stored in ``root``, and return them by name."""
        names = [name for name in self.tensor_attrs.values() if name.startswith("_tensor_constant")]
        constants = {name: getattr(root, name) for name in names}
        for name in names:
            delattr(root, name)
        return constants


def _mode() -> tuple[object, ...]:
    """What blocks of code set for the computations in them."""
    return is_grad_enabled(), is_autocast_enabled("cpu"), get_autocast_dtype("cpu")


def _ancestors(path: str) -> Iterator[str]:
    names = path.split(".")
    return (".".join(names[:count]) for count in range(len(names)))


def _paths_that_split(module: Module, args: tuple[Nested, ...], kwargs: dict[str, Nested]) -> set[str]:
    """The modules that were running when ``pipe_split`` was called."""
    running: list[str] = []
    found: set[str] = set()
    with contextlib.ExitStack() as stack:
        for path, each in module.named_modules():

            def enter(*_: object, path: str = path) -> None:
                running.append(path)

            def leave(*_: object) -> None:
                running.pop()

            stack.callback(each.register_forward_pre_hook(enter).remove)
            stack.callback(each.register_forward_hook(leave).remove)
        with listening(lambda: found.update(running)), no_grad():
            module(*args, **kwargs)
    return found


def _check_opened(module: Module, path: str) -> None:
    """Raise for a module with a split point in it that a graph of its calls cannot stand for."""
    what = f"{path!r}, a {type(module).__name__}" if path else f"the model, a {type(module).__name__}"
    if isinstance(module, FSDPModule | DistributedDataParallel):
        raise ArgumentError(
            f"pipeline: {what}, is data parallel already. Split the plain model first; then apply"
            " fully_shard or DistributedDataParallel to the module of the stage."
        )
    hooks = [name for name in vars(module) if name.endswith("_hooks") and vars(module)[name]]
    hooks = [name for name in hooks if "forward" in name or "backward" in name]
    if hooks:
        raise ArgumentError(
            f"pipeline: {what}, has a split point in it, and hooks ({', '.join(hooks)}), which no stage could"
            " call. Remove them, or register them at modules inside of the stages."
        )


def _to_meta(leaf: Nested) -> Nested:
    return leaf.to("meta") if isinstance(leaf, Tensor) else leaf


@contextlib.contextmanager
def _undisturbed(module: Module) -> Iterator[None]:
    """Restore the buffers of ``module`` and the random generator at the end."""
    before = [
        (buffer, buffer._version, buffer.detach().clone())
        for buffer in module.buffers()
        if buffer.device.type != "meta"
    ]
    with fork_rng():
        try:
            yield
        finally:
            with no_grad():
                for buffer, version, values in before:
                    if buffer._version != version:
                        buffer.copy_(values)
