"""The base classes of quantization schemes, which define what replaces each layer.

A scheme is a plugin of the kind ``quantizers``; ``tenon.quantize(model, "name")`` constructs one without
arguments, and an instance can be passed instead of a name. Its attributes are plain values, from which it is
constructed again when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tenon.errors import ModuleTypeError, QuantizationError
from tenon.extend import resolve, settings
from tenon.nn.module import Module
from tenon.nn.parallel import DistributedDataParallel
from tenon.nn.parameter import is_lazy
from tenon.nn.weights import begin_pipeline, pipeline_of, stored_tensor
from tenon_compress.quantize.bfloat16_layers import BFloat16Layer
from tenon_compress.quantize.layers import QuantizedLayer

if TYPE_CHECKING:
    from tenon import Tensor

#: The name under which a prepared layer has the observer of its input.
INPUT_OBSERVER = "input_steps"
#: Attributes that a layer takes over from the one it replaces.
_HOOKS = (
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)  # fmt: skip


class Scheme:
    """Base class of quantization schemes."""

    #: Whether the scheme needs calibration data.
    calibrates: ClassVar[bool] = False
    #: The name under which a plugin declares the scheme.
    name: ClassVar[str]

    def layer(self, module: Module) -> Module | None:
        """Return the replacement of ``module``, or itself changed in place, or None to leave it."""
        raise NotImplementedError


class WeightScheme(Scheme):
    """A scheme that stores encoded weights, and decodes them when a layer reads them.

    The classes of the layers remain: a step in the pipeline of each weight decodes it.
    """

    def encode(self, weight: Tensor) -> Mapping[str, Tensor]:
        """Return the tensors, by name, from which ``decode`` computes the weight."""
        raise NotImplementedError

    def decode(self, shape: tuple[int, ...], **parts: Tensor) -> Tensor:
        """Return the float32 weight of ``shape``."""
        raise NotImplementedError

    def layer(self, module: Module) -> Module | None:
        """Encode every parameter of two axes or more."""
        wide = [name for name, p in module._parameters.items() if p is not None and p.dim() > 1]
        for name in wide:
            self.store(module, name, self.encode(getattr(module, name).detach()))
        return module if wide else None

    def store(self, module: Module, name: str, parts: Mapping[str, Tensor]) -> None:
        """Replace ``module.<name>`` by a weight that is decoded from ``parts``."""
        shape = tuple(getattr(module, name).shape)
        Decoded(name, self.name, dict(vars(self)), tuple(parts), shape).begin(module, parts)


@dataclass
class Decoded:
    """The step that decodes a weight of ``shape`` from the tensors called ``<name>_<part>``.

    The weight keeps its dtype, or has the one to which the module was converted since: that of an empty
    buffer in addition to the parts, which is not saved.
    """

    name: str
    scheme: str
    options: dict[str, object]
    parts: tuple[str, ...]
    shape: tuple[int, ...]
    is_mask: ClassVar[bool] = False

    def forward(self, module: Module, *values: Tensor) -> Tensor:
        """Decode the weight."""
        weight = self._scheme().decode(self.shape, **dict(zip(self.parts, values, strict=True)))
        return weight.to(getattr(module, self._floats).dtype)

    def begin(self, module: Module, parts: Mapping[str, Tensor]) -> None:
        """Register the parts in ``module`` in place of its weight."""
        weight = getattr(module, self.name)
        begin_pipeline(module, self.name, self, {f"{self.name}_{part}": t for part, t in parts.items()})
        module.register_buffer(self._floats, weight.detach().new_empty(0), persistent=False)

    @property
    def _floats(self) -> str:
        return f"{self.name}_floats"

    def right_inverse(self, module: Module, value: Tensor) -> list[Tensor]:
        """Encode a weight that is assigned; return its parts in order."""
        parts = self._scheme().encode(value)
        return [parts[part] for part in self.parts]

    def discard(self, module: Module) -> None:
        """Remove the empty buffer, which is all that the step registered besides the parts."""
        delattr(module, self._floats)

    def _scheme(self) -> WeightScheme:
        scheme: WeightScheme = resolve("quantizers", self.scheme)(**self.options)
        return scheme


def decodes(module: Module) -> bool:
    """Whether ``module`` itself has weights that a step decodes."""
    pipelines = (pipeline_of(module, name) for name in vars(module).get("_weights", ()))
    return any(pipeline is not None and isinstance(pipeline.steps[0], Decoded) for pipeline in pipelines)


def only_stored(module: Module) -> bool:
    """Whether weights of ``module`` itself are stored quantized but computed as floats."""
    return not module.computes_in_bfloat16 if isinstance(module, BFloat16Layer) else decodes(module)


def scheme_of(spec: object) -> Scheme:
    """Return the scheme that ``spec`` names or is; QuantizationError if it is neither."""
    if isinstance(spec, Scheme):
        return spec
    if isinstance(spec, str):
        cls = resolve("quantizers", spec)
        if isinstance(cls, type) and issubclass(cls, Scheme):
            return cls()
    raise QuantizationError(
        f"quantize: {spec!r} is not a scheme. Give the name of one, such as 'int8-dynamic', or an instance."
    )


def check_model(model: Module, caller: str) -> None:
    """Raise an error that names ``caller`` unless ``model`` is a module with initialized weights."""
    if not isinstance(model, Module):
        raise ModuleTypeError(f"{caller} takes a module, got {type(model).__name__}.")
    if isinstance(model, DistributedDataParallel):
        raise ModuleTypeError(
            f"{caller} takes the model itself, got DistributedDataParallel. Give it model.module."
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise QuantizationError(f"{caller}: '{name}' has no shape yet. Call the model once before.")


def check_unprepared(model: Module, caller: str) -> None:
    """Raise QuantizationError that names ``caller`` if ``model`` observes the inputs of its layers."""
    path = next((path for path, module in model.named_modules() if INPUT_OBSERVER in module._modules), None)
    if path is not None:
        raise QuantizationError(
            f"{caller}: '{path}' is prepared already. Pass the original model, or call convert."
        )


def check_weights(path: str, module: Module) -> None:
    """Raise QuantizationError if a weight of ``module`` is complex, integer, or not finite."""
    for name in list(module._parameters):
        tensor = stored_tensor(module, name)
        if tensor is None:
            continue
        where = f"{path}.{name}" if path else name
        if not tensor.is_floating_point():
            raise QuantizationError(
                f"'{where}' has dtype {tensor.dtype}, which cannot be quantized: only floats can."
            )
        if not bool(tensor.detach().isfinite().all()):
            count = int((~tensor.detach().isfinite()).sum())
            raise QuantizationError(
                f"'{where}' holds {count} number(s) that are not finite, so no scale fits it. Look at the"
                " training run: an earlier checkpoint may be sound."
            )


def skipped(model: Module, skip: Collection[str], caller: str) -> set[str]:
    """Return the paths in ``skip`` and all below them; errors about unknown paths name ``caller``."""
    check_model(model, caller)
    if isinstance(skip, str):
        raise QuantizationError(f"skip must be a collection of paths: pass [{skip!r}].")
    settings.names(caller, "skip", skip)
    paths = [path for path, _ in model.named_modules(remove_duplicate=False)]
    unknown = sorted(set(skip).difference(paths))
    if unknown:
        raise QuantizationError(f"skip names {unknown}, which this {type(model).__name__} does not have.")
    modules = {id(m) for path in skip for m in model.get_submodule(path).modules()}
    return {path for path, m in model.named_modules(remove_duplicate=False) if id(m) in modules}


def tied_paths(model: Module) -> list[list[str]]:
    """Return, for each parameter that several modules share, the paths of these modules."""
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                paths.setdefault(id(parameter), []).append(path)
    return [several for several in paths.values() if len(several) > 1]


def restore_ties(model: Module, ties: list[list[str]]) -> None:
    """Let modules that shared a parameter share a quantized tensor, where it is equal in each."""
    for several in ties:
        seen: list[Tensor] = []
        for module in map(model.get_submodule, several):
            for name, own in module._buffers.items():
                if own is None or not own.numel():
                    continue
                same = (t for t in seen if t.dtype is own.dtype and t.shape == own.shape)
                shared = next((t for t in same if bool((t == own).all())), own)
                module._buffers[name] = shared
                seen.append(shared)


def bake(module: Module) -> None:
    """Bake weights that are computed by steps (parametrized, pruned) into plain parameters."""
    for name in [n for n in module.__dict__.get("_weights", {}) if pipeline_of(module, n)]:
        pipeline = pipeline_of(module, name)
        if pipeline is not None:
            pipeline.bake(module, len(pipeline.steps))


def replace(model: Module, path: str, layer: Module) -> Module:
    """Replace the module at ``path`` by ``layer``, under all its names; return the new model.

    A quantized layer returns floats of the module's dtype, and takes over its hooks.
    """
    old = model.get_submodule(path) if path else model
    if isinstance(layer, QuantizedLayer):
        floats = (p.dtype for p in old.parameters(recurse=False) if p.is_floating_point())
        layer.floats = next(floats, layer.floats)
        for name in _HOOKS:
            if vars(old).get(name):
                getattr(layer, name).update(getattr(old, name))
    if not path:
        return layer
    for alias, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            parent, _, name = alias.rpartition(".")
            setattr(model.get_submodule(parent), name, layer)
    return model
