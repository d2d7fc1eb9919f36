"""Create, check and write the ONNX model of a graph with its weights; see ``target.py``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import __version__
from tenon.extend import Aval, CapturedGraph, errors, replacing, settings
from tenon_target_onnx.builder import Builder, Step
from tenon_target_onnx.families.integers import separate_weights
from tenon_target_onnx.lowering import write_calls
from tenon_target_onnx.packages import onnx_package
from tenon_target_onnx.sizes import RANGE, add_size_guards, is_number, range_text

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

#: The opsets that can be written; 20 is the first that has ``Gelu``.
OPSETS = range(17, 24)
OPSET = 20
#: Version 10 of the file's own format has metadata of nodes; opsets above 21 need later ones.
_FORMAT = {22: 10, 23: 11}
#: Weights above this are written to a separate file: a protobuf message is limited to 2 GB.
LARGEST = 2**31 - 2**24
#: Smaller arrays stay in the model, where shapes are read from them.
_SMALL = 1024


@dataclass(frozen=True)
class Options:
    """The options of a written model."""

    opset: int = OPSET
    #: Names of the first inputs and outputs; other inputs have the names of the arguments, outputs output0,
    #: ...
    input_names: Sequence[str] = ()
    output_names: Sequence[str] = ()
    #: The total number of bytes above which weights are written to a separate file.
    largest: int = LARGEST
    #: Whether parameters are in the model; without them they are inputs.
    parameters: bool = True
    #: Metadata of the model, by name.
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_opset(self.opset)
        settings.names("Options", "input_names", self.input_names)
        settings.names("Options", "output_names", self.output_names)
        settings.whole("Options", "largest", self.largest, most=2**63 - 1)
        settings.flag("Options", "parameters", self.parameters)
        settings.instance("Options", "metadata", self.metadata, Mapping, "a mapping of strings")


@dataclass(frozen=True)
class Model:
    """A model without its weights, and the weights as arrays."""

    proto: ModelProto
    arrays: dict[str, np.ndarray]

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def check_opset(opset: int) -> None:
    """Raise ArgumentError for an opset that is not written."""
    if opset not in OPSETS:
        raise errors.ArgumentError(
            f"the target onnx writes opsets {OPSETS[0]} to {OPSETS[-1]}, not {opset!r}."
        )


def make(graph: CapturedGraph, options: Options) -> Model:
    """Return the model of a graph, which has been lowered to ops that have a form."""
    onnx = onnx_package()
    graph = graph.sized()
    b = Builder(options.opset)
    b.positive = frozenset(name for name, symbol in graph.symbols.items() if symbol.least)
    inputs = _add_inputs(b, graph, options)
    add_size_guards(b, graph)
    write_calls(b, graph)
    separate_weights(b)
    outputs = _add_outputs(b, graph, options)
    steps = list(_needed(b.steps, [name for name, _ in outputs]))
    read = {name for step in steps for name in step.inputs} | {name for name, _ in outputs}
    arrays = {name: array for name, array in b.initializers.items() if name in read}
    proto = onnx.GraphProto(name="graph")
    proto.node.extend(_node(onnx, step) for step in steps)
    proto.input.extend(_described(onnx, name, aval) for name, aval in inputs)
    proto.output.extend(_described(onnx, name, aval) for name, aval in outputs)
    model = onnx.ModelProto(
        ir_version=_FORMAT.get(options.opset, 10), producer_name="tenon", producer_version=__version__,
        graph=proto, opset_import=[onnx.OperatorSetIdProto(domain="", version=options.opset)],
    )  # fmt: skip
    ranges = {RANGE + n: range_text(symbol.least, symbol.most) for n, symbol in graph.symbols.items()}
    for key, value in {**ranges, **options.metadata}.items():
        model.metadata_props.add(key=key, value=value)
    return Model(model, arrays)


def _add_inputs(b: Builder, graph: CapturedGraph, options: Options) -> list[tuple[str, Aval]]:
    """Name arguments, parameters and constants; return the inputs."""
    inputs: list[tuple[str, Aval]] = []
    for position, node in enumerate(graph.arguments):
        given = position < len(options.input_names)
        name = b.unique(options.input_names[position] if given else node.label)
        b.names[node.out()] = name
        inputs.append((name, node.avals[0]))
        for axis, size in enumerate(node.avals[0].shape):
            if not is_number(size):
                b.symbols.setdefault(str(size), (name, axis))
    for node in graph.nodes:
        if node.kind == "input" and node.value is not None:
            if options.parameters:
                array = np.asarray(node.value.detach().numpy())
                b.names[node.out()] = b.initializer(array, node.label or "tensor")
            else:
                b.names[node.out()] = name = b.unique(node.label or "tensor")
                inputs.append((name, node.avals[0]))
        elif node.kind == "constant":
            b.names[node.out()] = b.initializer(np.asarray(node.value), node.label or "constant")
    return inputs


def _add_outputs(b: Builder, graph: CapturedGraph, options: Options) -> list[tuple[str, Aval]]:
    """Name the outputs; a value that has a name already is copied."""
    outputs: list[tuple[str, Aval]] = []
    renamed: dict[str, str] = {}
    computed = {name for step in b.steps for name in step.outputs}
    for position, ref in enumerate(graph.outputs):
        given = position < len(options.output_names)
        name = b.unique(options.output_names[position] if given else f"output{position}")
        own = b.names[ref]
        if own in computed and own not in renamed:
            renamed[own] = name
        else:
            source = renamed.get(own, own)
            b.steps.append(Step("Identity", b.unique("Identity"), (source,), (name,), {}, ("", "", "")))
        outputs.append((name, ref.aval))
    for index, step in enumerate(b.steps):
        b.steps[index] = Step(
            step.operator, step.name, tuple(renamed.get(n, n) for n in step.inputs),
            tuple(renamed.get(n, n) for n in step.outputs), step.attributes, step.origin,
        )  # fmt: skip
    return outputs


def _needed(steps: Sequence[Step], outputs: Sequence[str]) -> list[Step]:
    """Return the nodes that an output needs, in order."""
    read, used = set(outputs), []
    for step in reversed(steps):
        if read.intersection(step.outputs):
            read.update(step.inputs)
            used.append(step)
    return used[::-1]


def _node(onnx: Any, step: Step) -> NodeProto:  # the package
    """Return a node with the op, module and line that it is from."""
    attributes = {
        key: onnx.helper.np_dtype_to_tensor_dtype(value) if isinstance(value, np.dtype) else value
        for key, value in step.attributes.items()
    }
    op, module, where = step.origin
    node: NodeProto = onnx.helper.make_node(
        step.operator, step.inputs, step.outputs, name=step.name, doc_string=where or None, **attributes
    )
    for key, value in (("op", op), ("module", module)):
        if value:
            node.metadata_props.add(key=key, value=value)
    return node


def _described(onnx: Any, name: str, aval: Aval) -> ValueInfoProto:  # the package
    """Return name, dtype and shape of an input or output; sizes that may differ have names."""
    sizes = [int(size) if is_number(size) else str(size) for size in aval.shape]
    kind = onnx.helper.np_dtype_to_tensor_dtype(aval.dtype)
    info: ValueInfoProto = onnx.helper.make_tensor_value_info(name, kind, sizes)
    return info


def write(model: Model, path: Path, largest: int = LARGEST) -> None:
    """Check a model and write it to ``path``; weights above ``largest`` bytes to ``path`` + ".data".

    Each file is replaced atomically, the model last.
    """
    onnx = onnx_package()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    beside = model.nbytes > largest
    external = {n: a for n, a in model.arrays.items() if beside and a.nbytes > _SMALL}
    offsets = dict(zip(external, _offsets(external), strict=True))
    checked = _with_weights(
        onnx,
        _checked(onnx, proto, model),
        (
            _external(onnx, name, array, offsets[name], path)
            if name in external
            else _tensor(onnx, name, array)
            for name, array in model.arrays.items()
        ),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    if external:
        with replacing(_data_of(path)) as file:
            for array, offset in zip(external.values(), _offsets(external), strict=True):
                file.seek(offset)
                file.write(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    with replacing(path) as file:
        file.write(checked.SerializeToString(deterministic=True))


def bytes_of(model: Model) -> bytes:
    """Check a model, and return the content of its file with all weights."""
    onnx = onnx_package()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    weights = (_tensor(onnx, name, array) for name, array in model.arrays.items())
    checked = _with_weights(onnx, _checked(onnx, proto, model), weights)
    content: bytes = checked.SerializeToString(deterministic=True)
    return content


def _with_weights(onnx: Any, proto: ModelProto, weights: Iterable[TensorProto]) -> ModelProto:  # the package
    """Put all weights in the place of those with which the model was checked."""
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(weights)
    return proto


def _data_of(path: Path) -> Path:
    return path.with_name(path.name + ".data")


def _offsets(arrays: dict[str, np.ndarray]) -> Iterator[int]:
    """Yield the offset of each array in the file of weights, aligned to pages."""
    place = 0
    for array in arrays.values():
        yield place
        place += -(-array.nbytes // 4096) * 4096


def _external(onnx: Any, name: str, array: np.ndarray, offset: int, path: Path) -> TensorProto:  # the package
    """Return a tensor that refers to its elements in the file of weights."""
    tensor: TensorProto = onnx.TensorProto(
        name=name, dims=array.shape, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
        data_location=onnx.TensorProto.EXTERNAL,
    )  # fmt: skip
    entries = {"location": os.fspath(_data_of(path).name), "offset": offset, "length": array.nbytes}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _tensor(onnx: Any, name: str, array: np.ndarray) -> TensorProto:  # the package
    tensor: TensorProto = onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    return tensor


def _checked(onnx: Any, proto: ModelProto, model: Model) -> ModelProto:  # the package
    """Return the model with inferred shapes, after onnx's checks, without its large weights.

    The checks copy the whole model several times, so large weights are inputs of what they see.
    """
    own = len(proto.graph.input)
    for name, array in model.arrays.items():
        if array.nbytes > _SMALL:
            proto.graph.input.append(_described(onnx, name, Aval(array.shape, array.dtype)))
        else:
            proto.graph.initializer.append(_tensor(onnx, name, array))
    try:
        onnx.checker.check_model(proto)
        result: ModelProto = onnx.shape_inference.infer_shapes(
            proto, check_type=True, strict_mode=True, data_prop=True
        )
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise errors.GraphError(
            f"the package onnx refuses the model: {error}. That is an error of the target onnx; please "
            "report it with the model."
        ) from error
    del result.graph.input[own:]
    return result
