"""PyTorch's ``torch.onnx``: ``export`` writes a model by the export target ``onnx`` of a plugin.

>>> import tenon
>>> model = tenon.nn.Linear(4, 2)
>>> program = tenon.onnx.export(model, (tenon.ones(1, 4),), "model.onnx")  # doctest: +SKIP
"""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NoReturn, TypeAlias

from tenon.engine.types import Nested
from tenon.errors import ArgumentError, PluginNotFoundError, TenonWarning, UnsupportedError
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph
from tenon.export.dim import Dim, dynamic_sizes
from tenon.export.exported_program import ExportedProgram
from tenon.export.naming import argument_names
from tenon.export.runner import Runner
from tenon.export.vectors import Run, Vectors, make_vectors
from tenon.nn.module import Module
from tenon.plugins import registry
from tenon.tensors.pytree import tree_flatten
from tenon.tensors.tensor import Tensor

__all__ = [
    "OperatorExportTypes",
    "TrainingMode",
    "export",
    "is_in_onnx_export",
    "register_custom_op_symbolic",
    "unregister_custom_op_symbolic",
]

#: Axes of an input whose sizes may change: their names, or their positions.
Axes: TypeAlias = Mapping[int, str] | Sequence[int]


class TrainingMode(enum.Enum):
    """The mode in which a model is exported; only ``EVAL`` and, for a model in eval mode, ``PRESERVE``."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """How ops are exported; only ``ONNX``: all as operators of ONNX."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_FALLTHROUGH = 2
    ONNX_ATEN_FALLBACK = 3


#: Parameters that do nothing: their default.
_IGNORED: dict[str, object] = {
    "report": False,
    "optimize": True,
    "profile": False,
    "dump_exported_program": False,
    "artifacts_dir": ".",
    "fallback": False,
    "do_constant_folding": True,
    "autograd_inlining": True,
}
#: Parameters whose other values are refused: their default, and what to do instead.
_REFUSED: dict[str, tuple[object, str]] = {
    "custom_translation_table": (None, "Define a lowering of the op in the plugin of the target onnx"),
    "custom_opsets": (None, "All operators are of ONNX's own set"),
    "export_modules_as_functions": (False, "Names and metadata of nodes state their module"),
    "keep_initializers_as_inputs": (
        False,
        "Weights are constants; export_params=False makes them inputs",
    ),
}
_exporting = False


def is_in_onnx_export() -> bool:
    """Return whether ``export`` is running the model now."""
    return _exporting


def export(
    model: Callable[..., Nested] | ExportedProgram,
    args: Nested = (),
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    kwargs: Mapping[str, Nested] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = False,
    dynamic_shapes: Nested = None,
    verify: bool = False,
    export_params: bool = True,
    dynamic_axes: Mapping[str, Axes] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    **options: object,
) -> Any:  # the program of a plugin
    """Write a model to ``f`` as ONNX; return a program that runs, with ``save`` and ``model_proto``.

    It needs ``pip install 'tenon-platform[onnx]'``. ``opset_version`` is 17 to 23, by default 20. ``args``
    are the example that the model runs on, in eval mode; ``dynamic_shapes`` (see ``tenon.export.export``) or
    ``dynamic_axes`` name the sizes that may change. ``external_data`` writes weights to a file beside ``f``;
    those of 2 GB and more always go there. ``verify`` compares the model with onnxruntime's outputs.

    ``report``, ``optimize``, ``profile``, ``dump_exported_program``, ``artifacts_dir``, ``fallback``,
    ``do_constant_folding``, ``autograd_inlining`` and ``dynamo`` do nothing, and warn if they are set. Others
    that would change the result are refused, such as ``custom_translation_table``.
    """
    _check_options({**options, "dynamo": dynamo})
    if operator_export_type is not OperatorExportTypes.ONNX:
        raise UnsupportedError(f"torch.onnx.export: {operator_export_type} is not supported; only ONNX is.")
    make = _target_program()
    positional = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    named = dict(kwargs or {})
    if isinstance(model, ExportedProgram):
        graph = model.captured
    else:
        names = (input_names or (), output_names or ())
        dynamic = _dynamic(model, positional, named, names, dynamic_axes, dynamic_shapes)
        graph = _captured(model, positional, named, dynamic, training)
    program = make(
        graph, opset=opset_version, input_names=input_names or (), output_names=output_names or (),
        parameters=export_params,
    )  # fmt: skip
    if verbose:
        print(graph)
    if verify:
        program.verify(_vectors(graph, named))
    if f is not None:
        program.save(f, external_data=external_data)
    return program


def _vectors(graph: CapturedGraph, kwargs: Mapping[str, Nested]) -> Vectors:
    """Return the test vectors of the graph for its example."""
    if not kwargs:
        return make_vectors(graph, [graph.example_arguments()])
    inputs = list(graph.example)
    return Vectors([Run(inputs, Runner(graph).run(inputs))])


def _target_program() -> Any:  # a function of the plugin
    """Return the function that creates an ONNX program; UnsupportedError states what to install."""
    hint = "Run: pip install 'tenon-platform[onnx]'"
    try:
        target = registry.resolve("targets", "onnx")
    except PluginNotFoundError as error:
        raise UnsupportedError(
            f"torch.onnx.export needs the plugin tenon_target_onnx, which is not loaded ({error}). {hint}."
        ) from error
    reason = target().missing()
    if reason is not None:
        raise UnsupportedError(f"torch.onnx.export: {reason}")
    return target.program


def _check_options(options: dict[str, object]) -> None:
    """Warn of parameters that do nothing; raise for those that are refused or unknown."""
    ignored = {**_IGNORED, "dynamo": True}
    for name, value in options.items():
        if name in ignored:
            if value != ignored[name]:
                warnings.warn(
                    f"torch.onnx.export: {name}={value!r} has no effect.", TenonWarning, stacklevel=3
                )
        elif name in _REFUSED:
            default, instead = _REFUSED[name]
            if value and value != default:
                raise UnsupportedError(f"torch.onnx.export: {name} is not supported. {instead}.")
        else:
            raise TypeError(f"export() got an unexpected keyword argument {name!r}")


def _captured(
    model: Callable[..., Nested],
    args: tuple[Nested, ...],
    kwargs: dict[str, Nested],
    dynamic: Mapping[str, Mapping[int, str]],
    training: TrainingMode,
) -> CapturedGraph:
    """Capture a model in eval mode, and restore the modes of its modules."""
    global _exporting
    if training is TrainingMode.TRAINING:
        raise UnsupportedError(
            "torch.onnx.export: models in training mode are not written; ONNX has no running statistics. "
            "Leave out training=, or export a training step to the target c."
        )
    modes = {m: m.training for m in model.modules()} if isinstance(model, Module) else {}
    try:
        _exporting = True
        if training is TrainingMode.EVAL and isinstance(model, Module):
            model.eval()
        return capture(model, *args, kwargs=kwargs, dynamic=dynamic or None)
    finally:
        _exporting = False
        for module, mode in modes.items():
            module.training = mode


def _dynamic(
    model: Callable[..., Nested],
    args: tuple[Nested, ...],
    kwargs: dict[str, Nested],
    given_names: tuple[Sequence[str], Sequence[str]],
    axes: Mapping[str, Axes] | None,
    shapes: Nested,
) -> Mapping[str, Mapping[int, str]]:
    """Return the sizes that may change, by the names of the arguments."""
    if axes is None:
        return dynamic_sizes(model, (args, kwargs), _with_dims(shapes))
    if shapes is not None:
        raise ArgumentError("torch.onnx.export: give dynamic_shapes or dynamic_axes, not both.")
    leaves, _ = tree_flatten((args, kwargs))
    names = argument_names(model, args, kwargs)
    tensors = [n for n, leaf in zip(names, leaves, strict=True) if isinstance(leaf, Tensor)]
    input_names, output_names = given_names
    own = {label: name for label, name in zip(input_names, tensors, strict=False)} | {n: n for n in tensors}
    result: dict[str, Mapping[int, str]] = {}
    for label, given in axes.items():
        if label in own:
            named = given if isinstance(given, Mapping) else {a: f"{label}_dynamic_axes_{a}" for a in given}
            result[own[label]] = {axis: name.replace(".", "_") for axis, name in named.items()}
    if axes and not result:
        raise ArgumentError(
            f"torch.onnx.export: dynamic_axes names {', '.join(axes)}; the inputs are {', '.join(own)}."
        )
    unknown = [label for label in axes if label not in own and label not in output_names]
    if unknown:
        warnings.warn(
            f"torch.onnx.export: dynamic_axes names {', '.join(unknown)}, neither an input nor an output. "
            f"The inputs are {', '.join(own)}.", TenonWarning, stacklevel=3,
        )  # fmt: skip
    return result


def _with_dims(shapes: Nested) -> Nested:
    """Return ``dynamic_shapes`` with a Dim for each name of a size."""
    if isinstance(shapes, Mapping):
        return {key: _with_dims(value) for key, value in shapes.items()}
    if isinstance(shapes, tuple | list):
        return type(shapes)(_with_dims(value) for value in shapes)
    return Dim(shapes) if isinstance(shapes, str) else shapes


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise UnsupportedError(
            f"torch.onnx.{name}: lowerings of ops are not registered here. A plugin provides them: see "
            "docs/guide/onnx.md."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raise UnsupportedError: lowerings of ops are not registered here."
    return refuse


register_custom_op_symbolic = _refused("register_custom_op_symbolic")
unregister_custom_op_symbolic = _refused("unregister_custom_op_symbolic")
