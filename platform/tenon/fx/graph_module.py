"""``GraphModule``: a module whose ``forward`` is generated from a graph.

Every GraphModule has a class of its own, as ``forward`` is a method. Change ``graph`` and call
``recompile()``. Parameters, buffers and submodules that the graph names are those of the module it was
traced from.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tenon.fx import module_paths
from tenon.fx.codegen import PythonCode, PyTreeCodeGen
from tenon.fx.generated_source import failing_line, make_function, print_failure
from tenon.fx.graph import Graph
from tenon.fx.module_folder import write_folder
from tenon.fx.node import Node
from tenon.fx.readable import readable
from tenon.nn.module import Module

__all__ = ["GraphModule"]

#: Attributes that a copy creates again and that are not pickled.
_OWN = ("_graph", "_code", "_lineno_map", "_prologue_start")
_HOOKS = ("_create_node_hooks", "_erase_node_hooks", "_replace_hooks", "_deepcopy_hooks")


class GraphModule(Module):
    """A module that runs a graph; see the module's docstring."""

    _graph: Graph
    _code: str
    meta: dict[str, Any]  # of any type

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Return an instance of a class of its own, which derives from ``cls``."""
        base = next(kind for kind in cls.__mro__ if "_is_class_of_one_graph" not in vars(kind))
        own = type(base.__name__, (base,), {"_is_class_of_one_graph": True, "__module__": base.__module__})
        instance: Self = super().__new__(own)
        return instance

    def __init__(
        self,
        root: Module | dict[str, Any],  # modules, parameters and tensors by path
        graph: Graph,
        class_name: str = "GraphModule",
    ) -> None:
        super().__init__()
        type(self).__name__ = type(self).__qualname__ = class_name
        if isinstance(root, Module):
            self.training = root.training
            module_paths.copy_named(root, self, graph)
        elif isinstance(root, dict):
            module_paths.assign_named(root, self, graph)
        else:
            raise RuntimeError(
                f"Unsupported type {type(root)} passed for root! Pass a module, or a dict of paths."
            )
        for hooks in _HOOKS:
            setattr(self, hooks, [])
        self.meta = {}
        self.graph = graph
        own_meta = getattr(root, "meta", None)
        if isinstance(own_meta, dict):
            self.meta.update(own_meta)

    @property
    def graph(self) -> Graph:
        """The graph; setting another one recompiles."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The generated source of ``forward``."""
        if "_code" not in self.__dict__:
            raise RuntimeError("Code has not been generated! Call recompile() first.")
        return self._code

    def recompile(self) -> PythonCode:
        """Generate ``forward`` again after the graph has changed; return the generated code."""
        graph = self._graph
        if isinstance(graph._codegen, PyTreeCodeGen):
            self._in_spec = graph._codegen.pytree_info.in_spec
            self._out_spec = graph._codegen.pytree_info.out_spec
        python_code = graph.python_code(root_module="self")
        self._code = python_code.src
        self._lineno_map = python_code._lineno_map
        self._prologue_start = python_code._prologue_start
        own: Any = type(self)  # the class of this one module
        own.forward = make_function(python_code.src, python_code.globals, graph._co_fields, self)
        return python_code

    def _recompile_submodules(self) -> list[PythonCode]:
        return [m.recompile() for _, m in self.named_modules() if isinstance(m, GraphModule)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # of any types
        """Run the graph; for an error in generated code, print the lines around it."""
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            line = failing_line(error.__traceback__)
            if line is not None:
                print_failure(error, self._code, line)
            raise

    # Submodules.

    def add_submodule(self, target: str, m: Module) -> bool:
        """Set the submodule at a path, with missing parents; return False if a parent is not a module."""
        *prefix, field = target.split(".")
        module: Module = self
        for name in prefix:
            below = getattr(module, name, None)
            if below is None:
                below = Module()
                setattr(module, name, below)
            if not isinstance(below, Module):
                return False
            module = below
        module.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the submodule at a path; False if there is none."""
        holder, field = module_paths.holder_of(self, target)
        if holder is None or not isinstance(getattr(holder, field, None), Module):
            return False
        delattr(holder, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Delete the submodules that no node calls or reads from."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                names = str(node.target).split(".")
                used.update(itertools.accumulate(names, lambda path, name: f"{path}.{name}"))
                if node.op == "call_module":
                    used.update(
                        f"{node.target}.{name}"
                        for name, _ in self.get_submodule(str(node.target)).named_modules()
                    )
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # Text and files.

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        expanded_def: bool = False,
    ) -> str:
        """Return, and print, the generated code with the program's lines as comments and the known shapes."""
        text = readable(
            self,
            type(self).__name__,
            include_stride=include_stride,
            include_device=include_device,
            colored=colored,
            expanded_def=expanded_def,
        )
        if print_output:
            print(text)
        return text

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the module as a package into ``folder``: ``from folder import FxModule`` imports it."""
        write_folder(self, Path(folder), module_name)

    def __str__(self) -> str:
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, reminder])

    # Copies.

    def __getstate__(self) -> dict[str, Any]:  # of any type
        state = super().__getstate__()
        return {key: value for key, value in state.items() if key not in _OWN and key not in _HOOKS}

    def __reduce__(self) -> tuple[object, ...]:
        base = next(kind for kind in type(self).__mro__ if "_is_class_of_one_graph" not in vars(kind))
        return _empty, (base,), (self.__getstate__(), self._graph, type(self).__name__)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return self.__reduce__()

    def __setstate__(self, state: Any) -> None:  # what __reduce__ returns
        attributes, graph, name = state
        super().__setstate__(attributes)
        for hooks in _HOOKS:
            setattr(self, hooks, [])
        type(self).__name__ = type(self).__qualname__ = name
        self.graph = graph

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:  # copies by id
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        attributes = copy.deepcopy(self.__getstate__(), memo)
        copied.__setstate__((attributes, copy.deepcopy(self._graph, memo), type(self).__name__))
        for name in ("_create_node_hooks", "_erase_node_hooks", "_replace_hooks", "_deepcopy_hooks"):
            setattr(copied, name, list(getattr(self, name)))
        for hook in self._deepcopy_hooks:
            hook(copied)
        return copied

    def __copy__(self) -> GraphModule:
        copied = GraphModule(self, self.graph, type(self).__name__)
        copied.meta = self.meta
        return copied

    def _replicate_for_data_parallel(self) -> Any:  # a GraphModule
        replica: Any = self.__copy__()  # with an attribute that only replicas have
        replica._is_replica = True
        return replica

    # Hooks.

    _create_node_hooks: list[Callable[[Node], object]]
    _erase_node_hooks: list[Callable[[Node], object]]
    _replace_hooks: list[Callable[..., object]]
    _deepcopy_hooks: list[Callable[[GraphModule], object]]

    @contextmanager
    def _set_replace_hook(self, f: Callable[..., object]) -> Iterator[None]:
        """Call ``f(old, new, user)`` for each use that a node's replacement changes, within a block."""
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable[..., object]) -> None:
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable[..., object]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[[Node], object]) -> None:
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable[[Node], object]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[[Node], object]) -> None:
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable[[Node], object]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable[[GraphModule], object]) -> None:
        self._deepcopy_hooks.append(f)

    def _unregister_deepcopy_hook(self, f: Callable[[GraphModule], object]) -> None:
        self._deepcopy_hooks.remove(f)


def _empty(base: type[GraphModule]) -> GraphModule:
    """Return an empty GraphModule, which unpickling fills."""
    return base.__new__(base)
