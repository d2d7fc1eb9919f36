"""Cut a captured model into a module for each stage.

A stage has the nodes between two split points. Tensors that a later stage needs pass through all stages in
between, so that each stage communicates with its neighbours only: the outputs of a stage are the inputs of
the next. Parameters, buffers and modules keep their names, and are shared with the model.
"""

from __future__ import annotations

import operator
from typing import Any

from tenon.distributed.pipelining.split_points import pipe_split
from tenon.distributed.pipelining.tracing import Capture
from tenon.errors import ArgumentError
from tenon.fx import Graph, GraphModule, Node
from tenon.fx.node import Argument, map_arg, nodes_in
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor


class Cut:
    """The stages of a captured ``model``: ``stages[i]`` has the nodes of stage i, ``inputs[i]`` what it
    gets from the stage before."""

    def __init__(self, model: Module, captured: Capture) -> None:
        self._model, self._captured = model, captured
        self.arguments: list[Node] = []
        self.stages: list[list[Node]] = [[]]
        self._stage_of: dict[Node, int] = {}
        self._prune()
        self._assign()
        self.inputs = self._find_inputs()

    def _prune(self) -> None:
        """Erase shapes and other values that only branches of the code have read."""
        for node in reversed(list(self._captured.graph.nodes)):
            is_number = node.op in ("call_function", "call_method") and not self._captured.is_tensor(node)
            if not node.users and (is_number or node.op == "get_attr"):
                self._captured.graph.erase_node(node)

    def _assign(self) -> None:
        for node in self._captured.graph.nodes:
            if node.op == "placeholder":
                self.arguments.append(node)
                self._stage_of[node] = 0
            elif node.op == "call_function" and node.target is pipe_split:
                self.stages.append([])
            elif node.op == "output":
                self.output: Argument = node.args[0]
            elif node.op != "get_attr":
                number = len(self.stages) - 1
                container = node.args[0] if node.target is operator.getitem else None
                if isinstance(container, Node) and not self._captured.is_tensor(container):
                    number = self._stage_of.get(container, number)  # where the container is
                self.stages[number].append(node)
                self._stage_of[node] = number
        empty = [number for number, nodes in enumerate(self.stages) if not nodes]
        if empty and len(self.stages) > 1:
            raise ArgumentError(
                f"pipeline: stage {empty[0]} of {len(self.stages)} would be empty: there is a split point"
                f" {'before the first' if empty[0] == 0 else 'without a'} computation. Remove it."
            )

    def _find_inputs(self) -> list[list[Node]]:
        """For each stage the tensors of earlier ones that it or a later stage uses, in order."""
        last_use: dict[Node, int] = {}
        for number, nodes in enumerate(self.stages):
            used = [[node.args, node.kwargs] for node in nodes]
            final = [self.output] if number == len(self.stages) - 1 else []
            for node in self._tensors_for([used, final], number):
                last_use[node] = number
        order = {node: index for index, node in enumerate(self._captured.graph.nodes)}
        return [
            sorted(
                (n for n, last in last_use.items() if self._stage_of[n] < number <= last),
                key=order.__getitem__,
            )
            for number in range(len(self.stages))
        ]

    def _tensors_for(self, arguments: Any, stage: int) -> list[Node]:  # arguments of nodes, nested
        """The tensors that ``stage`` needs for nodes with these arguments: those of numbers it computes
        again."""
        needed: dict[Node, None] = {}
        for node in nodes_in(arguments):
            if node.op == "get_attr" or self._stage_of[node] == stage:
                continue
            if self._captured.is_tensor(node):
                needed[node] = None
            else:
                self._check_number(node, stage)
                needed.update(dict.fromkeys(self._tensors_for([node.args, node.kwargs], stage)))
        return list(needed)

    def _check_number(self, node: Node, stage: int) -> None:
        value = self._captured.values[node]
        if node.op in ("placeholder", "call_module"):
            raise ArgumentError(
                f"pipeline: stage {stage} needs {node.name!r} of stage {self._stage_of[node]}, a"
                f" {type(value).__name__}, but stages pass tensors on. Take the tensors out of it before the"
                " split point."
            )

    # --- modules ---

    def modules(self) -> list[GraphModule]:
        """A module for each stage."""
        made = [self._module(number) for number in range(len(self.stages))]
        self._add_unused(made)
        for stage in made:
            _keep_persistence(stage, self._model)
            for path, module in stage.named_modules():
                original = _find(self._model, path)
                if isinstance(original, Module) and original is not module:
                    module.training = original.training
        return made

    def _module(self, number: int) -> GraphModule:
        graph = Graph()
        copies: dict[Node, Node] = {}
        for node in self.arguments if number == 0 else self.inputs[number]:
            copies[node] = graph.placeholder(str(node.target) if node.op == "placeholder" else node.name)

        def copied(node: Node) -> Node:
            """The node in this graph: attributes are read, and numbers computed, where they are needed."""
            if node not in copies:
                copies[node] = graph.node_copy(node, copied)
            return copies[node]

        for node in self.stages[number]:
            if node.op == "call_module" or self._captured.is_tensor(node) or not node.users:
                copied(node)
        if number + 1 < len(self.stages):
            results = [copied(node) for node in self.inputs[number + 1]]
            graph.output(results[0] if len(results) == 1 else tuple(results))
        else:
            graph.output(map_arg(self.output, copied))
        values = {path: self._attribute(path) for path in _targets(graph)}
        return GraphModule(values, graph, f"submod_{number}")

    def _attribute(self, path: str) -> Any:  # a module, a parameter or a tensor
        constant = self._captured.constants.get(path)
        return _find(self._model, path) if constant is None else constant

    def _add_unused(self, stages: list[GraphModule]) -> None:
        """Give parameters and buffers that ``forward`` does not use to the stage of their neighbours."""
        known = {name for stage in stages for name in stage.state_dict(keep_vars=True)}
        for name in self._model.state_dict(keep_vars=True):
            tensor = _find(self._model, name)
            if name in known or not isinstance(tensor, Tensor):
                continue
            holder = name.rpartition(".")[0]
            near = [stage for stage in stages if holder and _find(stage, holder) is not None]
            _assign(near[0] if near else stages[0], name, tensor)


def _targets(graph: Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")]


def _find(module: Module, path: str) -> Any:  # a module, a tensor, or None
    value: Any = module  # then a module or tensor in it
    for name in path.split(".") if path else ():
        value = getattr(value, name, None)
    return value


def _assign(root: Module, path: str, tensor: Tensor) -> None:
    holder, (*names, last) = root, path.split(".")
    for name in names:
        if not isinstance(getattr(holder, name, None), Module):
            holder.add_module(name, Module())
        holder = getattr(holder, name)
    if isinstance(tensor, Parameter):
        holder.register_parameter(last, tensor)
    else:
        holder.register_buffer(last, tensor)


def _keep_persistence(stage: Module, model: Module) -> None:
    """Leave out of the state_dict of ``stage`` what is not in that of ``model``."""
    kept = set(model.state_dict(keep_vars=True))
    for path, _ in list(stage.named_buffers()):
        holder, _, last = path.rpartition(".")
        if path not in kept:
            stage.get_submodule(holder)._non_persistent_buffers_set.add(last)
