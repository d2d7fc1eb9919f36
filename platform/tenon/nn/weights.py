"""The weight pipeline: a weight that is computed from stored tensors by a sequence of steps.

Parametrizing a weight, pruning it, and the older ``weight_norm`` and ``spectral_norm`` all add steps to the
one pipeline of that weight, in any order. A pipeline belongs to one name of one module. It holds no tensor:
the stored tensors are in the ordinary registries (``weight_orig`` and ``weight_mask`` of the module,
``original`` of ``parametrizations.weight``), so they are moved, saved, loaded and reduced over ranks as any
parameter or buffer. The weight itself is not an attribute: reading it ends in ``Module.__getattr__``, which
evaluates the pipeline. So it is never stale, and a module with computed weights can be copied and pickled.

Steps can be removed by baking, which folds all steps up to one into the stored tensor, or by dropping, which
removes a step and leaves the others. Next: ``nn/utils/parametrize.py`` and ``nn/masks.py`` register steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tenon.engine.grad_mode import MODE
from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleError, ModuleTypeError, ModuleValueError
from tenon.nn.parameter import Parameter, is_lazy
from tenon.nn.registration import typename
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module

#: Cache of weights computed since the outermost ``cached()`` was entered, by what they depend on.
_cache: ContextVar[dict[tuple[object, ...], tuple[Tensor, Module]] | None] = ContextVar(
    "weights", default=None
)


class Step(Protocol):
    """One step of a pipeline; it holds no module and no tensor, but looks up both by name."""

    #: Whether the step only zeroes elements, so that any value is its own right inverse.
    is_mask: ClassVar[bool]

    def forward(self, module: Module, *values: Tensor) -> Tensor:
        """Return the weight after this step; the first step receives every stored tensor."""

    def right_inverse(self, module: Module, value: Tensor) -> Tensor | Sequence[Tensor]:
        """Return the inputs from which this step computes ``value``: a tensor, or a sequence of several."""

    def discard(self, module: Module) -> None:
        """Remove what the step stores in ``module``."""


@dataclass
class Parametrized:
    """The step computed by one module of ``parametrizations.<name>``, by its index in that list."""

    name: str
    index: int
    is_mask: ClassVar[bool] = False

    def forward(self, module: Module, *values: Tensor) -> Tensor:
        """Call the module, hooks included."""
        return module.parametrizations[self.name][self.index](*values)

    def right_inverse(self, module: Module, value: Tensor) -> Tensor | Sequence[Tensor]:
        """Call ``right_inverse`` of the module; ModuleError if it has none."""
        return inverse(module.parametrizations[self.name][self.index], value)

    def discard(self, module: Module) -> None:
        """Do nothing: the list removes its modules together."""


def inverse(parametrization: Module, value: Tensor) -> Tensor | Sequence[Tensor]:
    """Return ``parametrization.right_inverse(value)``; ModuleError if it is not defined."""
    if not hasattr(parametrization, "right_inverse"):
        raise ModuleError(
            f"parametrization {type(parametrization).__name__} does not implement right_inverse. Define a "
            "method right_inverse(value), or assign to the tensor that it is computed from."
        )
    return parametrization.right_inverse(value)


@dataclass
class Pipeline:
    """The computation of ``name`` of a module: ``steps`` in order, from the tensors ``stored``."""

    name: str
    #: Names of the stored tensors, in ``parametrizations.<name>`` if there is one and else in the module.
    stored: tuple[str, ...]
    steps: list[Step] = field(default_factory=list)

    def read(self, module: Module) -> Tensor:
        """Return the weight; inside ``cached()`` the cached one."""
        cache = _cache.get()
        if cache is None:
            return self.value(module)
        key = (id(module), self.name, MODE.enabled, WATCHERS.recorder)
        if key not in cache:
            cache[key] = self.value(module), module
        return cache[key][0]

    def value(self, module: Module, count: int | None = None) -> Tensor:
        """Compute the weight after the first ``count`` steps; after all of them if None."""
        steps = self.steps[:count]
        if count is None and self.all_parametrized:
            return module.parametrizations[self.name]()
        values = self.originals(module)
        for step in steps:
            values = [step.forward(module, *values)]
        return values[0]

    def write(self, module: Module, value: object) -> None:
        """Change the stored tensors so that the weight becomes ``value``, as far as the steps allow."""
        if not isinstance(value, Tensor):
            raise ModuleTypeError(
                f"cannot assign '{typename(value)}' as '{self.name}', which is computed by "
                f"{len(self.steps)} step(s). Assign a tensor, or remove the steps first."
            )
        if self.listed(module):
            # A mask's right inverse is the value itself, so masks only check it; the parametrizations invert
            # it.
            for step in self.steps:
                if step.is_mask:
                    step.right_inverse(module, value)
            module.parametrizations[self.name].right_inverse(value)
        else:
            result: Any = value  # one tensor, until the first step may return several
            with no_grad():
                for step in reversed(self.steps):
                    result = step.right_inverse(module, result)
                self._store(module, result)
        forget()

    def _store(self, module: Module, value: Tensor | Sequence[Tensor]) -> None:
        """Set the data of the stored tensors; raise ModuleValueError for another shape or dtype."""
        values = [value] if isinstance(value, Tensor) else list(value)
        stored = self.originals(module)
        for name, old, new in zip(self.stored, stored, values, strict=True):
            if new.shape != old.shape or new.dtype != old.dtype:
                raise ModuleValueError(
                    f"cannot assign a tensor of shape {tuple(new.shape)} and dtype {new.dtype} to "
                    f"'{self.name}': '{name}' has shape {tuple(old.shape)} and dtype {old.dtype}."
                )
        for old, new in zip(stored, values, strict=True):
            old.data = new.detach()

    @property
    def all_parametrized(self) -> bool:
        """Whether every step is a parametrization, none a mask."""
        return all(type(step) is Parametrized for step in self.steps)

    def listed(self, module: Module) -> bool:
        """Whether the stored tensors are in ``parametrizations.<name>``."""
        return "parametrizations" in module._modules and self.name in module.parametrizations

    def owner(self, module: Module) -> Module:
        """Return the module that holds the stored tensors."""
        return module.parametrizations[self.name] if self.listed(module) else module

    def originals(self, module: Module) -> list[Tensor]:
        """The stored tensors."""
        owner = self.owner(module)
        return [getattr(owner, name) for name in self.stored]

    def bake(self, module: Module, count: int) -> None:
        """Fold the first ``count`` steps into the stored tensor; the others stay.

        A single stored tensor stays the same object, so that an optimizer still refers to it.
        """
        with no_grad():
            value = self.value(module, count)
        originals = self.originals(module)
        if self.stored in (("original",), (f"{self.name}_orig",)):
            originals[0].data = value.detach()
            tensor = originals[0]
        else:
            is_parameter = any(isinstance(original, Parameter) for original in originals)
            needs_grad = any(original.requires_grad for original in originals)
            tensor = Parameter(value, needs_grad) if is_parameter else value
        self.retain_steps(module, tensor, self.steps[count:])

    def drop_parametrizations(self, module: Module) -> None:
        """Remove all steps but the masks, which then apply to the stored tensor."""
        self.retain_steps(module, self.originals(module)[0], [step for step in self.steps if step.is_mask])

    def retain_steps(self, module: Module, tensor: Tensor, steps: Sequence[Step]) -> None:
        """Keep only ``steps``, a subset of the steps, and compute the weight from ``tensor`` alone."""
        for step in self.steps:
            if step not in steps:
                step.discard(module)
        parametrized = [step for step in steps if type(step) is Parametrized]
        persistent = self._take_stored(module)
        if self.listed(module):
            kept_modules = [module.parametrizations[self.name][step.index] for step in parametrized]
            if kept_modules:
                module.parametrizations[self.name].restart(tensor, kept_modules, persistent)
            else:
                del module.parametrizations[self.name]
                if not len(module.parametrizations):
                    del module.parametrizations
        for index, step in enumerate(parametrized):
            step.index = index
        self.steps, self.stored = list(steps), ("original",) if parametrized else (f"{self.name}_orig",)
        computed(module).pop(f"{self.name}_orig", None)
        if not steps:
            close(module, self.name)
        if not parametrized:
            put(module, self.stored[0] if steps else self.name, tensor, persistent)
        self.alias(module)
        forget()

    def alias(self, module: Module) -> None:
        """Make ``weight_orig`` readable if there is a mask but another tensor is stored."""
        original = f"{self.name}_orig"
        if any(step.is_mask for step in self.steps) and original not in self.stored:
            computed(module)[original] = Before(self.name)

    def _take_stored(self, module: Module) -> bool:
        """Remove the stored tensors; return whether all of them are persistent."""
        owner = self.owner(module)
        return all([take(owner, name)[1] for name in self.stored])


@dataclass
class Before:
    """``weight_orig`` of a weight with masks and other steps: the value before the first mask."""

    name: str

    def read(self, module: Module) -> Tensor:
        """Return the value after the steps before the first mask."""
        pipeline = computed(module)[self.name]
        first = next(i for i, step in enumerate(pipeline.steps) if step.is_mask)
        return pipeline.value(module, first)

    def write(self, module: Module, value: object) -> None:
        """Raise: the value is not stored."""
        raise ModuleError(
            f"'{self.name}_orig' is computed by the steps before the mask. Assign to '{self.name}' instead."
        )


def computed(module: Module) -> dict[str, Any]:  # the name tells a caller which of the two it is
    """Return the computed names of ``module``, each with its ``Pipeline``, or ``Before``."""
    pipelines: dict[str, Pipeline | Before] = module.__dict__.setdefault("_weights", {})
    return pipelines


def pipeline_of(module: Module, name: str) -> Pipeline | None:
    """Return the pipeline that computes ``name``, or None."""
    pipeline = module.__dict__.get("_weights", {}).get(name)
    return pipeline if isinstance(pipeline, Pipeline) else None


def stored_tensor(module: Module, name: str) -> Tensor | None:
    """Return the parameter or buffer ``name`` that a pipeline may start from; None if there is none."""
    for registry in (module._parameters, module._buffers):
        if registry.get(name) is not None:
            return registry[name]
    return None


def refuse_lazy(weight: Tensor, name: str, norm: str) -> None:
    """Raise ModuleValueError if ``weight`` is uninitialized.

    ``name`` is the class of the step, ``norm`` its normalization in words.
    """
    if is_lazy(weight):
        raise ModuleValueError(
            f"The module passed to `{name}` can't have uninitialized parameters. Make sure to run the dummy"
            f" forward before applying {norm} normalization"
        )


def open_pipeline(module: Module, name: str, stored: tuple[str, ...]) -> Pipeline:
    """Create a pipeline without steps for ``name``, after its tensor was removed and stored elsewhere."""
    pipeline = computed(module)[name] = Pipeline(name, stored)
    return pipeline


def begin_pipeline(module: Module, name: str, step: Step, stored: Mapping[str, Tensor]) -> None:
    """Create a pipeline in which ``step`` computes ``name`` from ``stored`` tensors, registered instead."""
    check_name_is_free(module, name)
    check_names_are_new(module, *stored)
    _, persistent = take(module, name)
    for stored_name, tensor in stored.items():
        put(module, stored_name, tensor, persistent)
    open_pipeline(module, name, tuple(stored)).steps.append(step)
    forget()


def remove_hook(module: Module, hook: object) -> None:
    """Remove ``hook`` from the forward pre-hooks of ``module``."""
    hooks = module._forward_pre_hooks
    for key in [key for key, value in hooks.items() if value is hook]:
        del hooks[key]


def check_name_is_free(module: Module, name: str) -> None:
    """Raise if the class does not support steps (``no_steps``, the reason), or if a class attribute ``name``
    would hide the computed weight."""
    reason = getattr(type(module), "no_steps", "")
    if reason:
        raise ModuleTypeError(
            f"'{name}' of this {type(module).__name__} can be neither pruned nor parametrized: {reason}"
        )
    if hasattr(type(module), name):
        raise ModuleValueError(
            f"'{name}' of {type(module).__name__} cannot be computed by steps: the class has an attribute of "
            "that name, which would be read instead. Remove it from the class."
        )


def check_names_are_new(module: Module, *names: str) -> None:
    """Raise ModuleValueError if ``module`` already has one of ``names``."""
    for name in names:
        if hasattr(module, name):
            raise ModuleValueError(
                f"attribute '{name}' already exists in {type(module).__name__}; a step would store its own"
                " under that name. Rename yours."
            )


def close(module: Module, name: str) -> None:
    """Remove the pipeline of ``name``."""
    names = computed(module)
    del names[name]
    if not names:
        del module.__dict__["_weights"]


def take(owner: Module, name: str) -> tuple[Tensor, bool]:
    """Remove the parameter or buffer ``name``; return the tensor, and whether it is persistent."""
    tensor: Tensor = getattr(owner, name)
    persistent = name not in owner._non_persistent_buffers_set
    delattr(owner, name)
    return tensor, persistent


def put(owner: Module, name: str, tensor: Tensor, persistent: bool = True) -> None:
    """Register ``tensor`` as a parameter or buffer, whichever it was."""
    if isinstance(tensor, Parameter):
        owner.register_parameter(name, tensor)
    else:
        owner.register_buffer(name, tensor, persistent)


@contextmanager
def cached() -> Iterator[None]:
    """Context manager: cache each computed weight until it is assigned to or its steps change.

    For models that read a weight several times in one forward, such as recurrent ones. Optimizer steps do not
    invalidate the cache: leave the block before them.
    """
    if _cache.get() is not None:
        yield
        return
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


def forget() -> None:
    """Invalidate the cache of ``cached()``."""
    cache = _cache.get()
    if cache is not None:
        cache.clear()
