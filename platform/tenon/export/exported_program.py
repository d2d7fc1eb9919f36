"""PyTorch's ``torch.export``: ``export`` captures a module, ``ExportedProgram`` is what it computes.

Next: ``python_graph.py`` writes the op graph as an ``fx.Graph``, ``program_file.py`` saves programs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from tenon import fx
from tenon.engine.op import Composite, table
from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph
from tenon.export.dim import dynamic_sizes
from tenon.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tenon.export.layers import Layers
from tenon.export.lowering import lower
from tenon.export.python_graph import PythonGraph, python_graph, state_path
from tenon.export.runner import argument_sizes
from tenon.export.signature import Result, Signature
from tenon.export.signature import TensorArgument as Given
from tenon.nn.module import Module
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import TreeSpec
from tenon.tensors.tensor import Tensor

_KINDS = {"parameter": InputKind.PARAMETER, "buffer": InputKind.BUFFER}


def export(
    mod: Module,
    args: tuple[Nested, ...],
    kwargs: Mapping[str, Nested] | None = None,
    *,
    dynamic_shapes: Nested = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:
    """Capture ``mod(*args, **kwargs)`` in the mode that the module is in; PyTorch's ``torch.export.export``.

    ``dynamic_shapes`` gives sizes that may change: by the names of the arguments, or in their structure, a
    dict of axes and ``Dim``. ``strict`` and ``preserve_module_call_signature`` have no effect.

    >>> import tenon
    >>> program = export(tenon.nn.Linear(4, 2).eval(), (tenon.ones(3, 4),))
    >>> program.graph_signature.parameters
    ['weight', 'bias']
    >>> tuple(program.module()(tenon.ones(3, 4)).shape)
    (3, 2)
    """
    if not isinstance(mod, Module):
        raise ValueError(
            f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}. Use "
            "tenon.export.capture for functions."
        )
    options = dict(kwargs or {})
    dynamic, ranges = dynamic_sizes(mod, tuple(args), options, dynamic_shapes)
    graph = capture(mod, *args, kwargs=options, dynamic=dynamic)
    for name, (least, most) in ranges.items():
        if name in graph.symbols:
            graph.symbols[name] = graph.symbols[name].bounded(least, most)
    return ExportedProgram(graph, (tuple(args), options))


class ExportedProgram:
    """What ``export`` returns: a captured graph with PyTorch's views of it."""

    def __init__(
        self, graph: CapturedGraph, example_inputs: tuple[tuple[Nested, ...], dict[str, Nested]] | None = None
    ) -> None:
        #: The op graph; ``tenon.export.save`` writes it for other machines.
        self.captured = graph
        self.example_inputs = example_inputs
        written = python_graph(graph, lifted=True)
        values = [*written.writes.values(), *written.outputs]
        written.graph.output(tuple(values))
        self._graph_module = fx.GraphModule({}, written.graph)
        self._graph_signature = _signature(graph, written)

    @property
    def graph_module(self) -> fx.GraphModule:
        """The graph as an ``fx.GraphModule``, whose placeholders are parameters, buffers and arguments."""
        return self._graph_module

    @property
    def graph(self) -> fx.Graph:
        """The graph of ``graph_module``."""
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What placeholders and outputs stand for."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by their qualified names."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    @property
    def constants(self) -> dict[str, Tensor]:
        """Other tensors that the graph reads."""
        kinds = self.captured.signature.states
        own = {n.label: n.value for n in self.captured.states if kinds[n.label] not in _KINDS}
        for node in self.captured.nodes:
            if node.kind == "constant":
                own[state_path(self.captured, node)] = wrap(node.value, device="cpu")
        return own

    @property
    def call_spec(self) -> tuple[TreeSpec, TreeSpec]:
        """The structure of ``(args, kwargs)``, and that of the result."""
        return self.captured.signature.in_spec, self.captured.signature.out_spec

    @property
    def range_constraints(self) -> dict[str, tuple[int, int | None]]:
        """The least and the largest size of each symbol."""
        return {name: (each.least, each.most) for name, each in self.captured.symbols.items()}

    def _named(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        kinds = self.captured.signature.states
        return ((n.label, n.value) for n in self.captured.states if kinds[n.label] == kind)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters with their qualified names."""
        return self._named("parameter")

    def parameters(self) -> Iterator[Tensor]:
        """Yield the parameters."""
        return (value for _, value in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers with their qualified names."""
        return self._named("buffer")

    def buffers(self) -> Iterator[Tensor]:
        """Yield the buffers."""
        return (value for _, value in self.named_buffers())

    def module(self, check_guards: bool = True) -> Module:
        """Return a module that computes what the exported one does, with its parameters and buffers.

        It takes the arguments of the exported module; ``check_guards=False`` leaves out the check of shapes
        and dtypes.
        """
        return _program_module(self.captured, check_guards)

    def run_decompositions(self, decomp_table: Mapping[object, object] | None = None) -> ExportedProgram:
        """Return the program with all composite ops replaced by their parts.

        A composite that ``decomp_table`` does not name, if one is given, stays.
        """
        retained = {op.name for op in table.by_name.values() if not isinstance(op, Composite)}
        if decomp_table is not None:
            named = {getattr(op, "__name__", str(op)) for op in decomp_table}
            retained = set(table.by_name) - named
        return ExportedProgram(lower(self.captured, retained, strict=False), self.example_inputs)

    def __str__(self) -> str:
        return f"ExportedProgram:\n{self._graph_module.code}\nGraph signature: {self._graph_signature}\n"


class ProgramModule(fx.GraphModule):
    """Runs an exported program on the arguments of the exported module, whose parameters it has by name."""

    _signature: Signature
    _checked: CapturedGraph | None

    def __call__(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Check the arguments, run the graph, and return the result in the module's structure."""
        tensors = self._signature.flatten(args, kwargs)
        if self._checked is not None:
            argument_sizes(self._checked, [tensor.raw for tensor in tensors])
        return self._signature.unflatten(super().__call__(*tensors))


def unflatten(module: ExportedProgram | CapturedGraph, flat_args_adapter: None = None) -> ProgramModule:
    """Return a program as a module with its layers, and with copies of its parameters and buffers.

    Calls of ``nn.Linear``, ``Conv1d`` to ``Conv3d``, batch norms in evaluation mode and ``Embedding`` are
    those of such layers again, at the paths where the exported module had them; all else are ops in
    ``forward``. So it can be quantized and pruned, and ``state_dict()`` has the names of the exported
    module's.
    ``flat_args_adapter`` is PyTorch's, and not supported.

    >>> import tenon
    >>> model = tenon.nn.Sequential(tenon.nn.Linear(4, 2), tenon.nn.ReLU()).eval()
    >>> unflatten(export(model, (tenon.ones(1, 4),))).get_submodule("0")
    Linear(in_features=4, out_features=2, bias=True)
    """
    if flat_args_adapter is not None:
        raise ArgumentError(
            "flat_args_adapter= is not supported: call the module with the exported arguments."
        )
    graph = module.captured if isinstance(module, ExportedProgram) else module
    made: ProgramModule = copy.deepcopy(_program_module(graph, True, Layers(graph)))
    made.eval()
    return made


def _program_module(graph: CapturedGraph, check: bool, layers: Layers | None = None) -> ProgramModule:
    written = python_graph(graph, lifted=False, layers=layers)
    for label, value in written.writes.items():
        written.graph.call_method("copy_", (written.graph.get_attr(label), value))
    written.graph.output(tuple(written.outputs))
    root: dict[str, Tensor | Module] = dict(_state(graph))
    if layers is not None:
        root = {path: value for path, value in root.items() if path not in layers.labels}
        root.update(layers.modules)
    made = ProgramModule(root, written.graph, "Program")
    made._signature, made._checked = graph.signature, graph if check else None
    return made


def _state(graph: CapturedGraph) -> dict[str, Tensor]:
    """Return the tensors that the graph reads, by the paths at which a module has them."""
    return {
        state_path(graph, node): wrap(node.value, device="cpu") if node.kind == "constant" else node.value
        for node in graph.nodes
        if node.value is not None and node.kind in ("input", "constant")
    }


def _signature(graph: CapturedGraph, written: PythonGraph) -> ExportGraphSignature:
    """Return what the placeholders and outputs of ``written`` stand for."""
    inputs: list[InputSpec] = []
    kinds = graph.signature.states
    for node in graph.nodes:
        if node.value is None or node.kind == "scalar":
            continue
        path = state_path(graph, node)
        kind = _KINDS.get(kinds.get(node.label, ""), InputKind.CONSTANT_TENSOR)
        persistent = True if kind is InputKind.BUFFER else None
        inputs.append(InputSpec(kind, TensorArgument(written.names[path]), path, persistent))
    for position, argument in enumerate(graph.signature.arguments):
        own: TensorArgument | ConstantArgument
        if isinstance(argument, Given):
            own = TensorArgument(written.names[argument.name])
        else:
            own = ConstantArgument(f"argument{position}", argument)
        inputs.append(InputSpec(InputKind.USER_INPUT, own, None))
    outputs = [
        OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(node.name), label)
        for label, node in written.writes.items()
    ]
    for position, returned in enumerate(graph.signature.returned):
        if isinstance(returned, Result):
            own = TensorArgument(written.outputs[returned.index].name)
        else:
            own = ConstantArgument(f"output{position}", returned)
        outputs.append(OutputSpec(OutputKind.USER_OUTPUT, own, None))
    return ExportGraphSignature(inputs, outputs)
