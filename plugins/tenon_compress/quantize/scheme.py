"""What a quantization scheme is: for each layer, what takes its place.

A scheme is a plugin of the kind ``quantizers``; ``tenon.quantize(model, "name")`` makes one without
arguments, and an instance can be given instead of a name. Its attributes are plain values, with which it is
made again where a model is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tenon.errors import ModuleTypeError, QuantizationError
from tenon.extend import resolve
from tenon.nn.module import Module
from tenon.nn.parallel import DistributedDataParallel
from tenon.nn.parameter import is_lazy
from tenon.nn.weights import begin_pipeline, pipeline_of, stored_tensor
from tenon_compress.quantize.bfloat16_layers import BFloat16Layer
from tenon_compress.quantize.layers import QuantizedLayer

if TYPE_CHECKING:
    from tenon import Tensor

#: The name under which a prepared layer has what watches its input.
INPUT_OBSERVER = "input_steps"
#: What a layer keeps of the one whose place it takes.
_HOOKS = (
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)  # fmt: skip


class Scheme:
    """Says what takes the place of a layer."""

    #: Whether it wants to see what flows through the model before it decides.
    calibrates: ClassVar[bool] = False
    #: The name under which a plugin declares it.
    name: ClassVar[str]

    def layer(self, module: Module) -> Module | None:
        """What takes the place of ``module``, itself changed in place, or None to leave it."""
        raise NotImplementedError


class WeightScheme(Scheme):
    """Stores weights as few bits, and computes them anew where a layer reads them.

    The classes of the layers stay: a step in the pipeline of each weight decodes it.
    """

    def encode(self, weight: Tensor) -> Mapping[str, Tensor]:
        """Tensors by name that ``decode`` makes the weight of."""
        raise NotImplementedError

    def decode(self, shape: tuple[int, ...], **parts: Tensor) -> Tensor:
        """The float32 weight of ``shape``."""
        raise NotImplementedError

    def layer(self, module: Module) -> Module | None:
        """Every parameter of two axes or more is stored by ``encode``."""
        wide = [name for name, p in module._parameters.items() if p is not None and p.dim() > 1]
        for name in wide:
            self.store(module, name, self.encode(getattr(module, name).detach()))
        return module if wide else None

    def store(self, module: Module, name: str, parts: Mapping[str, Tensor]) -> None:
        """Let ``module.<name>`` be decoded from ``parts``."""
        shape = tuple(getattr(module, name).shape)
        Decoded(name, self.name, dict(vars(self)), tuple(parts), shape).begin(module, parts)


@dataclass
class Decoded:
    """The step that decodes a weight of ``shape`` from the tensors called ``<name>_<part>``.

    The weight has the dtype that it had before, or to which the module was moved since: that of an empty
    buffer beside them, which is not saved.
    """

    name: str
    scheme: str
    options: dict[str, object]
    parts: tuple[str, ...]
    shape: tuple[int, ...]
    is_mask: ClassVar[bool] = False

    def forward(self, module: Module, *values: Tensor) -> Tensor:
        """The weight."""
        weight = self._scheme().decode(self.shape, **dict(zip(self.parts, values, strict=True)))
        return weight.to(getattr(module, self._floats).dtype)

    def begin(self, module: Module, parts: Mapping[str, Tensor]) -> None:
        """Let ``module`` hold the parts instead of the weight that it has."""
        weight = getattr(module, self.name)
        begin_pipeline(module, self.name, self, {f"{self.name}_{part}": t for part, t in parts.items()})
        module.register_buffer(self._floats, weight.detach().new_empty(0), persistent=False)

    @property
    def _floats(self) -> str:
        return f"{self.name}_floats"

    def right_inverse(self, module: Module, value: Tensor) -> list[Tensor]:
        """What a weight that is assigned is stored as."""
        parts = self._scheme().encode(value)
        return [parts[part] for part in self.parts]

    def discard(self, module: Module) -> None:
        """Nothing but the empty buffer is kept besides what is stored."""
        delattr(module, self._floats)

    def _scheme(self) -> WeightScheme:
        made: WeightScheme = resolve("quantizers", self.scheme)(**self.options)
        return made


def decodes(module: Module) -> bool:
    """Whether ``module`` itself has weights that a step decodes."""
    pipelines = (pipeline_of(module, name) for name in vars(module).get("_weights", ()))
    return any(pipeline is not None and isinstance(pipeline.steps[0], Decoded) for pipeline in pipelines)


def only_stored(module: Module) -> bool:
    """Whether weights of ``module`` itself are of few bits and computed as floats."""
    return not module.multiplies if isinstance(module, BFloat16Layer) else decodes(module)


def scheme_of(spec: object) -> Scheme:
    """The scheme that ``spec`` names or is."""
    if isinstance(spec, Scheme):
        return spec
    if isinstance(spec, str):
        made = resolve("quantizers", spec)
        if isinstance(made, type) and issubclass(made, Scheme):
            return made()
    raise QuantizationError(
        f"quantize: {spec!r} is no scheme. Give the name of one, such as 'int8-dynamic', or an instance."
    )


def check_model(model: Module, what: str) -> None:
    """Errors that name ``what`` unless ``model`` is a module itself, with weights."""
    if not isinstance(model, Module):
        raise ModuleTypeError(f"{what} takes a module, got {type(model).__name__}.")
    if isinstance(model, DistributedDataParallel):
        raise ModuleTypeError(
            f"{what} takes the model itself, got DistributedDataParallel. Give it model.module."
        )
    for name, held in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(held):
            raise QuantizationError(f"{what}: '{name}' has no shape yet. Call the model once before.")


def check_unprepared(model: Module, what: str) -> None:
    """QuantizationError that names ``what`` if the model watches the inputs of its layers."""
    path = next((path for path, module in model.named_modules() if INPUT_OBSERVER in module._modules), None)
    if path is not None:
        raise QuantizationError(
            f"{what}: '{path}' is prepared already. Give the model that it was made of, or call convert."
        )


def check_weights(path: str, module: Module) -> None:
    """QuantizationError if a floating weight of ``module`` is complex, an integer, or not finite."""
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


def skipped(model: Module, skip: Collection[str], what: str) -> set[str]:
    """The paths in ``skip`` and all below them; errors that name ``what`` where ``model`` has no such."""
    check_model(model, what)
    if isinstance(skip, str):
        raise QuantizationError(f"skip is a collection of paths: give [{skip!r}].")
    paths = [path for path, _ in model.named_modules(remove_duplicate=False)]
    unknown = sorted(set(skip).difference(paths))
    if unknown:
        raise QuantizationError(f"skip names {unknown}, which this {type(model).__name__} does not have.")
    modules = {id(m) for path in skip for m in model.get_submodule(path).modules()}
    return {path for path, m in model.named_modules(remove_duplicate=False) if id(m) in modules}


def tied_paths(model: Module) -> list[list[str]]:
    """The paths of modules that have one parameter, for each that several have."""
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules():
        for held in module._parameters.values():
            if held is not None:
                paths.setdefault(id(held), []).append(path)
    return [several for several in paths.values() if len(several) > 1]


def restore_ties(model: Module, ties: list[list[str]]) -> None:
    """Let modules that had one parameter have one tensor of few bits, where that is the same in each."""
    for several in ties:
        found: list[Tensor] = []
        for module in map(model.get_submodule, several):
            for name, own in module._buffers.items():
                if own is None or not own.numel():
                    continue
                same = (t for t in found if t.dtype is own.dtype and t.shape == own.shape)
                shared = next((t for t in same if bool((t == own).all())), own)
                module._buffers[name] = shared
                found.append(shared)


def bake(module: Module) -> None:
    """Let weights that are computed by steps (parametrized, pruned) be plain parameters of what they are."""
    for name in [n for n in module.__dict__.get("_weights", {}) if pipeline_of(module, n)]:
        pipeline = pipeline_of(module, name)
        if pipeline is not None:
            pipeline.bake(module, len(pipeline.steps))


def replace(model: Module, path: str, layer: Module) -> Module:
    """``model`` with ``layer`` wherever the module at ``path`` is; the layer itself if that is the model.

    A quantized layer gives floats of the dtype that the module has, and has its hooks.
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
    for place, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            above, _, name = place.rpartition(".")
            setattr(model.get_submodule(above), name, layer)
    return model
