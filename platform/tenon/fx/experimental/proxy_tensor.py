"""``make_fx``: run a function on examples and return the graph of the operators that it ran.

Unlike in symbolic tracing, the function runs on real tensors, and what is recorded are the ops below modules,
functions and backward passes. Branches and sizes are those of the examples. An interceptor receives each op
(ADR 0040); tensors are identified by their arrays. In-place changes are recorded as ``aten.add_`` or
``aten.copy_``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Op
from tenon.engine.types import Arguments, Attrs, OpFunction
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError
from tenon.fx.codegen import PyTreeCodeGen, PyTreeInfo
from tenon.fx.experimental.operator_calls import call_of
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node, map_aggregate
from tenon.fx.passes.shape_prop import _extract_tensor_metadata
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.ops.aten import Operator
from tenon.random.draws import Draw
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

__all__ = ["get_proxy_mode", "make_fx"]


def make_fx(
    f: Callable[..., Any],  # a function of tensors
    decomposition_table: Mapping[Operator, Callable[..., Any]] | None = None,  # functions of tensors
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    record_stack_traces: bool = False,
    proxy_module_inputs: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
) -> Callable[..., GraphModule]:
    """Return a function that runs ``f`` on its arguments and returns the operators that ran as a
    ``GraphModule``.

    ``decomposition_table``: operators -> functions that are traced in their place. ``tracing_mode``
    ``"fake"`` or ``"symbolic"`` runs ``f`` on copies of the arguments; sizes are fixed in each mode. The
    other options have no effect.

    >>> import tenon
    >>> def loss(x, w):
    ...     return tenon.autograd.grad((x * w).sum(), [w])
    >>> traced = make_fx(loss)(tenon.ones(2), tenon.ones(2, requires_grad=True))
    >>> [node.target for node in traced.graph.nodes if node.op == "call_function"]
    [aten.mul.Tensor, aten.sum.default, aten.expand.default, aten.conj.default, aten.mul.Tensor, sum_to]
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"tracing_mode is 'real', 'fake' or 'symbolic'; got {tracing_mode!r}")

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:  # of any type
        if tracing_mode != "real":
            leaves, spec = tree_flatten(args)
            copied = [x.detach().clone().requires_grad_(x.requires_grad) if _plain(x) else x for x in leaves]
            args = tree_unflatten(copied, spec)
        return OperatorTracer(decomposition_table or {}).trace(f, args)

    return traced


def _plain(x: object) -> bool:
    return isinstance(x, Tensor)


#: The functions in ``draws.BROADCAST`` -> PyTorch's names of them.
_DRAWS = {
    "binomial": "binomial",
    "dirichlet": "_sample_dirichlet",
    "poisson": "poisson",
    "standard_gamma": "_standard_gamma",
}


class OperatorTracer:
    """Records the ops that one thread runs, as nodes of a graph."""

    def __init__(self, decompositions: Mapping[Operator, Callable[..., Any]]) -> None:  # functions of tensors
        self.decompositions = decompositions
        self.graph, self.root = Graph(), Module()
        #: Ids of arrays -> their nodes, and the arrays, which keeps the ids unique.
        self._values: dict[int, tuple[Node, Any]] = {}  # arrays of any backend
        self._thread = threading.get_ident()
        self._paused = False

    def trace(self, f: Callable[..., Any], args: tuple[Any, ...]) -> GraphModule:  # of any type
        """Run ``f`` and return the graph of its ops."""
        leaves, spec = tree_flatten(args)
        names = _names(f, args)
        count = dict.fromkeys(names, 0)
        for name, arg in zip(names, args, strict=True):
            for leaf in tree_flatten(arg)[0]:
                count[name] += 1
                node = self.graph.placeholder(f"{name}_{count[name]}")
                if isinstance(leaf, Tensor):
                    self._hold(leaf, node)
        with self._watching():
            out = f(*args)
        result = map_aggregate(out, lambda x: self._node_of(x) if isinstance(x, Tensor) else x)
        self.graph.output(result)
        if len(leaves) != len(args) or any(leaf is not arg for leaf, arg in zip(leaves, args, strict=True)):
            self.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(names, spec, None)))
        name = getattr(f, "__name__", type(f).__name__)
        return GraphModule(self.root, self.graph, name if name.isidentifier() else "GraphModule")

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        global _active
        before = WATCHERS.recorder, WATCHERS.around_creation, _active
        if before[0] is not None:
            raise CaptureError("make_fx cannot run inside of a function that is being compiled.")
        SLOT.push(self)
        WATCHERS.recorder, WATCHERS.around_creation, _active = self, self._created, self
        try:
            yield
        finally:
            SLOT.pop(self)
            WATCHERS.recorder, WATCHERS.around_creation, _active = before

    @contextlib.contextmanager
    def _pausing(self) -> Iterator[None]:
        before, self._paused = self._paused, True
        recorder, WATCHERS.recorder = WATCHERS.recorder, None
        try:
            yield
        finally:
            self._paused, WATCHERS.recorder = before, recorder

    def _hold(self, tensor: Tensor, node: Node) -> None:
        """Store ``node`` as the node that returns ``tensor``."""
        self._values[id(tensor.raw)] = node, tensor.raw
        with self._pausing():
            node.meta["tensor_meta"] = _extract_tensor_metadata(tensor)

    def _node_of(self, value: Any) -> Any:  # an argument of any type
        """Return the node of a tensor; a tensor that no recorded op computed becomes a ``get_attr`` node."""
        if not isinstance(value, Tensor):
            return value
        entry = self._values.get(id(value.raw))
        if entry is not None:
            return entry[0]
        kind = "_param_constant" if isinstance(value, Parameter) else "_tensor_constant"
        number = 0
        while hasattr(self.root, f"{kind}{number}"):
            number += 1
        name = f"{kind}{number}"
        setattr(self.root, name, value if isinstance(value, Parameter) else value.detach())
        node = self.graph.get_attr(name)
        self._hold(value, node)
        return node

    def _add(self, target: Any, args: Any, kwargs: dict[str, Any]) -> Node:  # of any type
        args = map_aggregate(args, self._node_of)
        kwargs = map_aggregate(kwargs, self._node_of)
        name = target.name if isinstance(target, Operator) else None
        return self.graph.create_node("call_function", target, args, kwargs, name)

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> Any:  # what the op returns
        """Run an op, and record it."""
        below: OpFunction = SLOT.below(self)
        if self._paused or threading.get_ident() != self._thread:
            return below(op, args, attrs)
        if isinstance(op, Composite) and not op.differentiable:
            return SLOT.parts(op, args, attrs)
        target, positional, keywords = call_of(op, args, attrs)
        if target in self.decompositions:
            return self.decompositions[target](*positional, **keywords)
        if op.name == "index":
            target, positional, keywords = operator.getitem, (args[0], attrs["key"]), {}  # type: ignore[assignment]
        node = self._add(target, positional, keywords)
        with self._pausing():
            out = below(op, args, attrs)
        if isinstance(out, tuple):
            for k, each in enumerate(out):
                self._hold(each, self._add(operator.getitem, (node, k), {}))
        else:
            self._hold(out, node)
        return out

    def _created(self, name: str, make: OpFunction, args: Arguments, options: Attrs) -> Any:  # a tensor
        """Record a tensor that is created without an op: from a size, from data, from random numbers."""
        with self._pausing():
            out = make(*args, **options)
        if threading.get_ident() != self._thread or not isinstance(out, Tensor) or self._paused:
            return out
        if name in ("as_tensor", "from_numpy", "frombuffer"):
            return out  # external memory: it becomes an attribute when it is used
        if name == "tensor":  # a copy in every run, as it may be changed
            with self._pausing():
                copied = out.detach().clone()
            self._hold(out, self._add(Operator("clone", "default"), (copied,), {}))
            return out
        if (
            args and callable(args[0]) and not isinstance(args[0], Tensor)
        ):  # a function that draws, a shape, a dtype
            shape, dtype = list(args[1]), out.dtype
            self._hold(
                out, self._add(Operator(name.removesuffix("_like"), "default"), (shape,), {"dtype": dtype})
            )
        elif name.endswith("_"):
            target, _, rest, keywords, _ = args
            self._hold(out, self._add(Operator(name, "default"), (target, *rest), dict(keywords)))
        else:
            plain = [list(a) if isinstance(a, tuple) else a for a in args]
            keywords = {key: value for key, value in options.items() if value is not None}
            self._hold(out, self._add(Operator(name, "default"), tuple(plain), keywords))
        return out

    # Callbacks of the recorder protocol (engine/watchers.py).

    def wrote(self, tensor: Tensor, array: Any) -> None:  # an array of any backend
        """Callback: ``array`` was copied into the memory of ``tensor``: record a ``copy_``."""
        target, source = self._node_of(tensor), self._values.get(id(array))
        if source is None:
            raise CaptureError(
                f"values that no op computed were written into a tensor of shape {list(tensor.shape)}:"
                " make_fx cannot record that. Use tenon's ops."
            )
        result = source[0]
        last = next(iter(reversed(self.graph.nodes)))
        changed = Operator("copy_", "default")
        inputs: tuple[Any, ...] = (target, result)  # nodes and numbers
        if (
            result is last
            and result.op == "call_function"
            and isinstance(result.target, Operator)
            and not result.users
        ):
            name = result.target.name
            if name == "copy":
                inputs = result.args
            elif result.args[:1] == (target,) and not result.kwargs and hasattr(Tensor, f"{name}_"):
                changed, inputs = Operator(f"{name}_", result.target.overload or "default"), result.args
        node = self.graph.create_node("call_function", changed, inputs, {}, changed.name)
        if inputs is not None and result is last and inputs != (target, result):
            self.graph.erase_node(result)
        node.meta.update(result.meta)
        self._values[id(tensor.raw)] = node, tensor.raw
        self._values[id(array)] = node, array

    def copied(self, array: Any, source: Tensor) -> None:  # an array of any backend
        """Callback: ``array`` is a copy of ``source``, made before an in-place change."""
        self._values[id(array)] = self._node_of(source), array

    def listening(self) -> bool:
        """Return False: side effects that only compiled functions repeat are not recorded."""
        return False

    def host_draw(self, draw: Draw, *tensors: Tensor) -> Tensor:
        """Record a function that draws by parameters which are tensors, and return what it draws now."""
        options = {} if draw.generator is None else {"generator": draw.generator}
        node = self._add(Operator(_DRAWS[draw.function], "default"), tensors, options)
        with self._pausing():
            drawn = wrap(draw(*(x._backend.to_host(x.raw) for x in tensors)), device=tensors[0].device)
        self._hold(drawn, node)
        return drawn

    def verifying(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which arguments are checked: nothing changes."""
        return contextlib.nullcontext()

    def _ignored(self, *args: object, **options: object) -> None:
        """Callback for events that need no node."""

    made = writing = reading = exchanged = unsupported = gradient_read = gradient_set = discard = refuse = (
        _ignored
    )
    assigning = _ignored


_active: OperatorTracer | None = None


def get_proxy_mode() -> OperatorTracer | None:
    """Return the tracer of the ``make_fx`` that is running, None without one."""
    return _active


def _names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:  # of any type
    """Return the name of the parameter that receives each argument."""
    try:
        bound = inspect.signature(f).bind(*args).arguments
    except (TypeError, ValueError):
        return [f"arg{k}" for k in range(len(args))]
    names: list[str] = []
    for name, parameter in inspect.signature(f).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{name}_{k}" for k in range(len(args) - len(names))]
        elif name in bound:
            names.append(name)
    return names
