"""``Tracer`` and ``symbolic_trace``: run a program on proxies and record its operations as a graph.

While a program is traced, calls of modules and reads of parameters go through the tracer (``Module.__call__``
and ``Module.__getattribute__`` are replaced), functions of tensors are rerouted to the proxies among their
arguments (``presence.py``), and functions registered with ``wrap`` are recorded as single calls.
"""

from __future__ import annotations

import collections
import copy
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tenon.fx.arguments import Function, is_named_tuple
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Argument
from tenon.fx.placeholders import PH, PHBase, PHWithMeta
from tenon.fx.presence import PROXIES
from tenon.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager
from tenon.fx.root_arguments import RootArguments, annotation_of
from tenon.fx.tracer_base import STARTS, base_types
from tenon.fx.wrapping import Patcher, found_proxy, wrap
from tenon.nn.containers import Sequential
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.registry import NAMES
from tenon.tensors.tensor import Tensor

__all__ = [
    "PH",
    "PHBase",
    "PHWithMeta",
    "ProxyableClassMeta",
    "Tracer",
    "is_fx_tracing",
    "symbolic_trace",
    "wrap",
]

#: The number of nested traces in progress.
_depth = 0
_proxyable_classes: dict[type, None] = {}


def is_fx_tracing() -> bool:
    """Whether a program is being traced."""
    return _depth > 0


is_fx_symbolic_tracing = is_fx_tracing


class ProxyableClassMeta(type):
    """The metaclass of classes whose construction is recorded if it receives a proxy."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:  # of any type
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # of any types
        proxy = found_proxy(args, kwargs) if is_fx_tracing() else None
        if proxy is None:
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)


class Tracer(RootArguments):
    """Traces modules and functions; override its methods to change how.

    ``autowrap_modules`` and ``autowrap_functions`` are recorded as calls, like functions registered with
    ``wrap``. ``param_shapes_constant``: the shapes of parameters are read as constants.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),  # any functions
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        listed = [
            v for m in autowrap_modules for k, v in vars(m).items() if not k.startswith("_") and callable(v)
        ]
        self._autowrap_function_ids = {id(function) for function in (*listed, *autowrap_functions)}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.root: Module = Module()
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}
        self.tensor_attrs: dict[Any, str] = {}  # tensors, and objects of proxyable classes

    # Methods that a subclass may override.

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is recorded as one call: tenon's own layers and those of its plugins, not
        containers."""
        package, _, rest = type(m).__module__.partition(".")
        is_library = (package == "tenon" and not rest.startswith("fx")) or package.startswith("tenon_")
        return is_library and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The path of a submodule; NameError if it is none of the traced module's."""
        paths = self.submodule_paths
        path = paths.get(mod) if paths is not None else None
        if path is None:
            path = next((name for name, module in self.root.named_modules() if module is mod), None)
        if path is None:
            raise NameError(
                f"module {type(mod).__name__} is not installed as a submodule of the traced module"
            )
        return path

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],  # any function
        args: tuple[Any, ...],  # of any types
        kwargs: dict[str, Any],  # the same
    ) -> Any:  # of any type
        """Record the call of a leaf, or call ``forward`` of another module to trace into it."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            calls = self.num_calls.get(path, 0)
            self.num_calls[path] = calls + 1
            key = f"{path}@{calls}" if calls else path
            self.module_stack[key] = (path, type(m))
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.pop(key, None)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:  # of any types
        """Return the value of a parameter, buffer or submodule that is read: a Proxy for a parameter."""
        members: Iterator[tuple[str, Tensor]]
        if isinstance(attr_val, Parameter):
            members = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            members = self.root.named_buffers()
        else:
            return attr_val
        for name, member in members:
            if member is attr_val:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self._proxy_of_parameter(name, attr_val)
                return parameter_proxy_cache[name]
        return attr_val

    def _proxy_of_parameter(self, name: str, value: Tensor) -> Proxy:
        if not self.param_shapes_constant:
            proxy: Proxy = self.create_proxy("get_attr", name, (), {})
            return proxy
        node = self.create_node("get_attr", name, (), {})
        return ParameterProxy(self, node, name, value)

    def create_arg(self, a: Any) -> Argument:  # of any type
        """Return ``a`` as an argument of a node: tensors and modules are read from the module by their
        paths."""
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError(f"parameter of shape {list(a.shape)} is not a member of this module")
        if isinstance(a, Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
            return self._constant(a, "_tensor_constant")
        if isinstance(a, Module):
            for name, module in self.root.named_modules():
                if a is module:
                    return self.create_node("get_attr", name, (), {})
        if is_named_tuple(a):
            return self.create_node("call_function", type(a), tuple(self.create_arg(item) for item in a), {})
        if type(a) in _proxyable_classes:
            return self._constant(a, f"_{type(a).__name__}_constant_")
        return super().create_arg(a)

    def _constant(self, value: Any, prefix: str) -> Argument:  # of any type
        """Return the node that reads ``value`` from an attribute of the root, which is set if there is
        none."""
        name = self.tensor_attrs.get(value)
        if name is None:
            name = self.get_fresh_qualname(prefix)
            self.tensor_attrs[value] = name
            setattr(self.root, name, value)
        return self.create_node("get_attr", name, (), {})

    def get_fresh_qualname(self, prefix: str) -> str:
        """Return a name of an attribute that the root does not have yet."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    # Tracing.

    def trace(
        self,
        root: Module | Callable[..., Any],  # any function
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,  # of any types
    ) -> Graph:
        """Return the graph of a module or a function.

        ``concrete_args`` fixes arguments by name: the program is traced for these values, and checks them
        when it runs. Containers with ``PH`` in them are flattened, so that each leaf is an argument of its
        own.
        """
        global _depth
        function = self._prepare(root)
        self.graph = Graph(tracer_cls=type(self))
        code = getattr(function, "__code__", None)
        if code is not None:
            self.graph._co_fields = {
                "co_name": code.co_name,
                "co_filename": code.co_filename,
                "co_firstlineno": code.co_firstlineno,
            }
        cache: dict[str, Any] = {}  # proxies of parameters
        with PROXIES.rerouted(), Patcher() as patcher:
            run, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
            self._patch(patcher, function, cache)
            _depth += 1
            try:
                result = self._run(run, args)
                kind = annotation_of(function, "return") if run is function else None
                self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=kind)
            finally:
                _depth -= 1
                self.submodule_paths = None
        return self.graph

    @staticmethod
    def _run(function: Callable[..., Any], args: list[Any]) -> Any:  # of any types
        return function(*args)

    def _prepare(self, root: Module | Callable[..., Any]) -> Callable[..., Any]:  # any function
        """Set the attributes of a trace of ``root``, and return the function to trace."""
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls = {}
        self.node_name_to_scope = {}
        self.tensor_attrs = {}
        if not isinstance(root, Module):
            self.root = Module()
            return root
        name = self.traced_func_name
        if not hasattr(type(root), name):
            raise AssertionError(f"traced_func_name={name} doesn't exist in {type(root).__name__}")
        self.root = root
        self.root_module_name = root._get_name()
        self.submodule_paths = {module: path for path, module in root.named_modules()}
        for path, module in root.named_modules():
            for key, value in vars(module).items():
                registered = key in module._parameters or key in module._buffers
                if not registered and isinstance(value, Tensor):
                    self.tensor_attrs[value] = f"{path}.{key}" if path else key
        function: Callable[..., Any] = getattr(type(root), name)  # any function
        return function

    def _patch(
        self,
        patcher: Patcher,
        function: Function,
        cache: dict[str, Any],  # any function, proxies
    ) -> None:
        call, read, missing = Module.__call__, Module.__getattribute__, Module.__getattr__
        ids = self._autowrap_function_ids

        def traced_call(module: Module, *args: Any, **kwargs: Any) -> Any:  # of any types
            def forward(*args: Any, **kwargs: Any) -> Any:  # of any types
                return call(module, *args, **kwargs)

            patcher.patch_listed(getattr(module.forward, "__globals__", {}), ids)
            return self.call_module(module, forward, args, kwargs)

        def traced_read(module: Module, name: str) -> Any:  # of any type
            value = read(module, name)
            if name[:2] != "__" and _is_registered(read(module, "__dict__"), name):
                return self.getattr(name, value, cache)
            return value

        def traced_missing(module: Module, name: str) -> Any:  # of any type
            return self.getattr(name, missing(module, name), cache)

        patcher.patch_class(Module, "__call__", traced_call)
        patcher.patch_class(Module, "__getattribute__", traced_read)
        patcher.patch_class(Module, "__getattr__", traced_missing)
        patcher.patch_wrapped()
        patcher.patch_listed(getattr(function, "__globals__", {}), ids)
        for module in self._autowrap_search:
            patcher.patch_listed(vars(module), ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:  # copies by id
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for key, value in self.__dict__.items():
            shared = key in ("_autowrap_search", "submodule_paths")
            copied.__dict__[key] = copy.copy(value) if shared else copy.deepcopy(value, memo)
        return copied


STARTS.add(Tracer._run.__code__)


def _is_registered(attributes: dict[str, Any], name: str) -> bool:  # of any type
    return any(name in attributes.get(registry, ()) for registry in NAMES)


def symbolic_trace(
    root: Module | Callable[..., Any],  # any function
    concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,  # of any types
) -> GraphModule:
    """Return a GraphModule of the operations of a module or function; see ``Tracer.trace`` for
    ``concrete_args``.

    >>> import tenon
    >>> def f(x):
    ...     return tenon.relu(x) + 1
    >>> print(symbolic_trace(f).code.strip())
    def forward(self, x):
        relu = tenon.relu(x);  x = None
        add = relu + 1;  relu = None
        return add
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


__all__ += ["base_types"]
