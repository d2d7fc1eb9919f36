"""PyTorch's ``torch.export``: ``export`` captures a module as an ``ExportedProgram``.

Next: ``python_graph.py`` writes the op graph as an ``fx.Graph``, ``program_file.py`` saves programs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from tenon import fx
from tenon.engine.op import Composite, table
from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.export.axes import axes_of
from tenon.export.capture import capture_call
from tenon.export.captured import CapturedGraph
from tenon.export.dim import Shapes, requested_axes
from tenon.export.dim_inference import program_graph
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
from tenon.export.naming import argument_names
from tenon.export.program_module import ProgramModule, copied, graph_state, program_module
from tenon.export.program_states import (
    add_states,
    aliases_of,
    held_states,
    states_of,
    temporary_buffers,
)
from tenon.export.python_graph import PythonGraph, python_graph, state_paths
from tenon.export.recorder import Options
from tenon.export.signature import Result
from tenon.export.signature import TensorArgument as Given
from tenon.export.simplify import drop_unread
from tenon.export.sizes import linear
from tenon.export.values import is_plain
from tenon.nn.module import Module
from tenon.tensors.pytree import TreeSpec
from tenon.tensors.tensor import Tensor

_KINDS = {"parameter": InputKind.PARAMETER, "buffer": InputKind.BUFFER}


class CallSpec(NamedTuple):
    """The structure of ``(args, kwargs)``, and that of the result."""

    in_spec: TreeSpec
    out_spec: TreeSpec


class SizeRange(NamedTuple):
    """The least and the largest size of a symbol; None: no limit."""

    lower: int
    upper: int | None


@dataclass(frozen=True, slots=True)
class Names:
    """What a program knows of the exported module in addition to its graph."""

    #: The names of all leaves of the arguments, of those that are plain values too.
    arguments: tuple[str, ...] = ()
    #: The buffers that are not in the state dict.
    temporary: frozenset[str] = frozenset()


def export(
    mod: Module,
    args: tuple[Nested, ...],
    kwargs: Mapping[str, Nested] | None = None,
    *,
    dynamic_shapes: Shapes = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Capture ``mod(*args, **kwargs)`` in the mode that the module is in; PyTorch's ``torch.export.export``.

    ``dynamic_shapes`` gives sizes that may change: by the names of the arguments, or in their structure, a
    dict of axes and ``Dim``, or one entry for each axis. A ``Dim`` is the same size wherever its name
    occurs, and ``2 * batch + 1`` is computed from one. Whether a ``Dim.AUTO`` may change is determined by
    captures at other sizes; a ``Dim.DYNAMIC`` that the program needs to be fixed is an error. Arguments and
    buffers that the module changes in place are changed by ``ExportedProgram.module()`` too.

    The other arguments have no effect, which a UserWarning says. PyTorch's ``strict=True`` reads the module's
    bytecode; here the module always runs, and what a program cannot represent is an error in both modes.

    >>> import tenon
    >>> program = export(tenon.nn.Linear(4, 2).eval(), (tenon.ones(3, 4),))
    >>> program.graph_signature.parameters
    ('weight', 'bias')
    >>> tuple(program.module()(tenon.ones(3, 4)).shape)
    (3, 2)
    """
    if not isinstance(mod, Module):
        raise ValueError(
            f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}. Use "
            "tenon.export.capture for functions."
        )
    if not isinstance(args, tuple):
        raise TypeError(
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}. Write (x,)."
        )
    if strict:
        _has_no_effect(
            "strict=True", "the module runs as with strict=False, and branches on the values of tensors raise"
        )
    if preserve_module_call_signature:
        _has_no_effect(
            "preserve_module_call_signature=", "submodules of the program keep no calls of their own"
        )
    if prefer_deferred_runtime_asserts_over_guards:
        _has_no_effect(
            "prefer_deferred_runtime_asserts_over_guards=True", "sizes are checked when a program is called"
        )
    call = (args, dict(kwargs or {}))
    options = Options(changes_arguments=True)

    def captured(dynamic: Mapping[str, Mapping[int, str]]) -> CapturedGraph:
        return capture_call(mod, call, dynamic, False, options)

    graph = program_graph(captured, requested_axes(mod, call, dynamic_shapes))
    add_states(graph, states_of(mod), aliases_of(mod))
    names = Names(tuple(argument_names(mod, *call)), temporary_buffers(mod))
    classes = {path: f"{type(m).__module__}.{type(m).__qualname__}" for path, m in mod.named_modules()}
    return ExportedProgram(graph, call, names, classes)


def _has_no_effect(argument: str, instead: str) -> None:
    warnings.warn(f"torch.export: {argument} has no effect: {instead}.", UserWarning, stacklevel=3)


class ExportedProgram:
    """The result of ``export``: a captured graph with PyTorch's interface to it."""

    def __init__(
        self,
        graph: CapturedGraph,
        example_inputs: tuple[tuple[Nested, ...], dict[str, Nested]] | None = None,
        names: Names | None = None,
        classes: Mapping[str, str] | None = None,
    ) -> None:
        #: The graph with all parameters and buffers of the module, in its order.
        self.whole = graph
        #: The op graph, with the state that it reads; ``tenon.export.save`` writes it for other machines.
        self.captured = graph.copy()
        drop_unread(self.captured)
        self.example_inputs = example_inputs
        self.names, self._classes = names or Names(), dict(classes or {})
        written = python_graph(graph, lifted=True, arguments=self.names.arguments, classes=self._classes)
        returned = [
            written.outputs[each.index] if isinstance(each, Result) else each if is_plain(each) else None
            for each in graph.signature.returned
        ]
        written.graph.output((*written.writes.values(), *returned))
        self._graph_module = fx.GraphModule({}, written.graph)
        self._graph_signature = _signature(graph, written, self.names)

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
        """The roles of placeholders and outputs."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by their qualified names, without buffers that are not persistent.

        A tied one has all of its names.
        """
        held = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        held |= {name: held[label] for name, label in self.whole.signature.aliases.items() if label in held}
        return {name: value for name, value in held.items() if name not in self.names.temporary}

    @property
    def constants(self) -> dict[str, Tensor]:
        """Other tensors that the graph reads, and buffers that are not persistent."""
        kinds = self.whole.signature.states
        return {
            path: tensor
            for path, tensor in graph_state(self.whole).items()
            if kinds.get(path) not in _KINDS or path in self.names.temporary
        }

    @property
    def tensor_constants(self) -> dict[str, Tensor]:
        """The same as ``constants``."""
        return self.constants

    @property
    def call_spec(self) -> CallSpec:
        """The structure of ``(args, kwargs)``, and that of the result."""
        return CallSpec(self.whole.signature.in_spec, self.whole.signature.out_spec)

    @property
    def range_constraints(self) -> dict[str, SizeRange]:
        """The least and the largest size of each symbol, and of each axis computed from one."""
        symbols = self.whole.symbols
        ranges = {name: SizeRange(each.least, each.most) for name, each in symbols.items()}
        for sizes in axes_of(self.whole).values():
            for size in sizes.values():
                form = linear(size)
                if form is not None:
                    name, factor, shift = form
                    least, most = symbols[name].least, symbols[name].most
                    upper = None if most is None else factor * most + shift
                    ranges[str(size)] = SizeRange(factor * least + shift, upper)
        return ranges

    @property
    def dialect(self) -> str:
        """What the operators are: ``"ATEN"``, the ops of tenon under PyTorch's names."""
        return "ATEN"

    def _named(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        kinds = self.whole.signature.states
        return ((n.label, n.value) for n in self.whole.states if kinds[n.label] == kind)

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
        """Return a module that computes the same as the exported one, with its parameters and buffers.

        It takes the arguments of the exported module; ``check_guards=False`` skips the check of shapes and
        dtypes.
        """
        return program_module(self.whole, check_guards, temporary=self.names.temporary)

    def run_decompositions(self, decomp_table: Mapping[object, object] | None = None) -> ExportedProgram:
        """Return the program with all composite ops replaced by their parts.

        A composite that ``decomp_table`` does not name, if one is given, stays.
        """
        kept = {op.name for op in table.by_name.values() if not isinstance(op, Composite)}
        if decomp_table is not None:
            named = {getattr(op, "__name__", str(op)) for op in decomp_table}
            kept = set(table.by_name) - named
        graph = lower(self.captured, kept, strict=False)
        add_states(graph, held_states(self.whole))
        return ExportedProgram(graph, self.example_inputs, self.names, self._classes)

    def validate(self) -> None:
        """Raise GraphError unless the graph is consistent."""
        self.whole.verify()

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise RuntimeError: call ``module()``."""
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __str__(self) -> str:
        ranges = {name: str(tuple(each)) for name, each in self.range_constraints.items()}
        return (
            f"ExportedProgram:\n{self._graph_module.code}\nGraph signature: {self._graph_signature}\n"
            f"Range constraints: {ranges}\n"
        )


def unflatten(module: ExportedProgram | CapturedGraph, flat_args_adapter: None = None) -> ProgramModule:
    """Return a program as a module with its layers, and with copies of its parameters and buffers.

    Calls of ``nn.Linear``, convolutions, transposed ones too, batch norms in evaluation mode, ``Embedding``,
    recurrent layers and cells, and ``MultiheadAttention`` become calls of such layers again, at the paths
    where the exported module had them; everything else becomes ops in ``forward``. So the result can be
    quantized and pruned, and its ``state_dict()`` has the keys of the exported module's. A recurrent or
    attention layer that dropped elements when it was captured is in training mode and does so again; one that
    was captured in evaluation mode has no dropout. A layer whose first or last ops cancelled with its
    neighbours', or that was called with a ``PackedSequence``, stays ops. ``flat_args_adapter`` is PyTorch's,
    and not supported.

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
    layers = Layers(graph)
    temporary = module.names.temporary if isinstance(module, ExportedProgram) else frozenset()
    made: ProgramModule = copied(program_module(graph, True, layers, temporary))
    made.eval()
    for path, layer in layers.modules.items():
        made.get_submodule(path).train(layer.training)
    return made


def _signature(graph: CapturedGraph, written: PythonGraph, names: Names) -> ExportGraphSignature:
    """Return what the placeholders and outputs of ``written`` stand for."""
    kinds = graph.signature.states
    states: list[InputSpec] = []
    constants: list[InputSpec] = []
    for node, path in state_paths(graph).items():
        kind = _KINDS.get(kinds.get(node.label, ""), InputKind.CONSTANT_TENSOR)
        persistent = path not in names.temporary if kind is InputKind.BUFFER else None
        spec = InputSpec(kind, TensorArgument(written.names[path]), path, persistent)
        (constants if node.kind == "constant" else states).append(spec)
    outputs = [
        OutputSpec(_mutation(kinds.get(label)), TensorArgument(node.name), label)
        for label, node in written.writes.items()
    ]
    for returned in graph.signature.returned:
        own: TensorArgument | ConstantArgument
        if isinstance(returned, Result):
            own = TensorArgument(written.outputs[returned.index].name)
        else:
            own = ConstantArgument("", returned)
        outputs.append(OutputSpec(OutputKind.USER_OUTPUT, own, None))
    return ExportGraphSignature([*states, *constants, *_arguments(graph, written, names)], outputs)


def _mutation(kind: str | None) -> OutputKind:
    """Return what the new value of a state of that kind is; of an argument without one."""
    if kind is None:
        return OutputKind.USER_INPUT_MUTATION
    return OutputKind.PARAMETER_MUTATION if kind == "parameter" else OutputKind.BUFFER_MUTATION


def _arguments(graph: CapturedGraph, written: PythonGraph, names: Names) -> list[InputSpec]:
    specs = []
    for position, argument in enumerate(graph.signature.arguments):
        own: TensorArgument | ConstantArgument
        if isinstance(argument, Given):
            own = TensorArgument(written.names[argument.name])
        else:
            known = names.arguments[position] if position < len(names.arguments) else f"argument{position}"
            own = ConstantArgument(written.names.get(known, known), argument)
        specs.append(InputSpec(InputKind.USER_INPUT, own, None))
    return specs
