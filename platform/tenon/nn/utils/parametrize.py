"""PyTorch's ``nn.utils.parametrize``: weights that modules compute from stored tensors.

``register_parametrization(layer, "weight", module)`` puts ``module`` into the pipeline of ``layer.weight``
(``nn/weights.py``). The stored tensor moves to ``layer.parametrizations.weight.original``, or ``original0``,
``original1``, ... if ``right_inverse`` returns several tensors.

Unlike in PyTorch the class of the layer does not change, so the layer can be pickled; its repr still says
``ParametrizedLinear``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from tenon.errors import ModuleError, ModuleValueError
from tenon.nn.containers import ModuleDict, ModuleList
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.weights import (
    Parametrized,
    Pipeline,
    cached,
    check_name_is_free,
    computed,
    forget,
    inverse,
    open_pipeline,
    pipeline_of,
    put,
    stored_tensor,
    take,
)
from tenon.plugins.registry import resolve
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


class ParametrizationList(ModuleList):
    """The parametrizations of one weight in order, and the stored tensors that the first is computed from.

    Calling it computes the weight, without masks between parametrizations.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        """Store what the right inverses, last first, return for ``original``.

        Raises ModuleValueError if that changes the dtype or device of a single stored tensor or, unless
        ``unsafe``, the dtype or shape of the weight; ``original`` then keeps its data.
        """
        self._add_modules(modules, unsafe)
        self._store_checked(original, original)

    @classmethod
    def _storing_in(cls, modules: Sequence[Module], original: Tensor, value: Tensor, unsafe: bool) -> Self:
        """Return a list that computes ``value`` and stores in ``original``, which has another value."""
        result = cls.__new__(cls)
        result._add_modules(modules, unsafe)
        result._store_checked(original, value)
        return result

    def _add_modules(self, modules: Sequence[Module], unsafe: bool) -> None:
        if not modules:
            raise ModuleValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe

    def _store_checked(self, original: Tensor, value: Tensor) -> None:
        """Store the inverse of ``value`` in ``original``; restore its data if the result does not fit."""
        data = original.data
        try:
            self._store_inverse(original, value)
            if not self.unsafe:
                check_result(self(), data)
        except BaseException:
            original.data = data
            raise

    def _store_inverse(self, original: Tensor, value: Tensor) -> None:
        """Register the tensors that the right inverses return for ``value``, last inverse first."""
        with no_grad():
            new: Any = value  # then what a ``right_inverse`` returns
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    # PyTorch's convention for a map without inverse: keep the value.
                    with suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if isinstance(new, Tensor):
            self.is_tensor, self.ntensors = True, 1
            for attribute in ("dtype", "device"):
                old, got = getattr(original, attribute), getattr(new, attribute)
                if old != got:
                    raise ModuleValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {attribute}.\n"
                        f"original.{attribute}: {old}\nright_inverse(original).{attribute}: {got}"
                    )
            if new is not value:
                original.data = new.detach()
            put(self, "original", original)
            return
        if not isinstance(new, Sequence):
            raise ModuleValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        for i, tensor in enumerate(new):
            if not isinstance(tensor, Tensor):
                raise ModuleValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got element {i} of the sequence with type {type(tensor).__name__}."
                )
        self.is_tensor, self.ntensors = False, len(new)
        is_parameter = isinstance(original, Parameter)
        for i, tensor in enumerate(new):
            stored = Parameter(tensor, original.requires_grad) if is_parameter else tensor.detach()
            put(self, f"original{i}", stored)

    @property
    def stored(self) -> tuple[str, ...]:
        """Names of the stored tensors, in the order in which the first parametrization takes them."""
        return ("original",) if self.is_tensor else tuple(f"original{i}" for i in range(self.ntensors))

    def restart(self, tensor: Tensor, modules: Sequence[Module], persistent: bool) -> None:
        """Store ``tensor`` in place of the removed tensors, and keep only ``modules``."""
        self._modules = {str(i): module for i, module in enumerate(modules)}
        self.is_tensor, self.ntensors = True, 1
        put(self, "original", tensor, persistent)

    def right_inverse(self, value: Tensor) -> None:
        """Change the stored tensors so that the weight becomes ``value``: ``layer.weight = value`` calls
        this.

        Raises ModuleError if a parametrization has no ``right_inverse``, ModuleValueError if its result does
        not fit the stored tensors, which are then unchanged.
        """
        with no_grad():
            new: Any = value  # then what a ``right_inverse`` returns
            for module in reversed(list(self)):
                new = inverse(module, new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ModuleValueError(
                        f"`right_inverse` should return a tensor. Got {type(new).__name__}"
                    )
                values = [new]
            else:
                if not isinstance(new, Sequence):
                    raise ModuleValueError(
                        f"'right_inverse' must return a sequence of tensors. Got {type(new).__name__}."
                    )
                values = list(new)
                if len(values) != self.ntensors:
                    raise ModuleValueError(
                        f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                        f"Got a sequence of length {len(values)}."
                    )
            self._write(values)

    def _write(self, values: list[Tensor]) -> None:
        """Set the data of the stored tensors; raise ModuleValueError for another type, dtype or device."""
        stored = [getattr(self, name) for name in self.stored]
        for i, (name, old, new) in enumerate(zip(self.stored, stored, values, strict=True)):
            subject = "The tensor" if self.is_tensor else f"Tensor {i}"
            if not isinstance(new, Tensor):
                raise ModuleValueError(f"{subject} returned by `right_inverse` is a {type(new).__name__}")
            for attribute in ("dtype", "device"):
                if getattr(new, attribute) != getattr(old, attribute):
                    raise ModuleValueError(
                        f"{subject} returned by `right_inverse` has {attribute} {getattr(new, attribute)}"
                        f" while `{name}` has {attribute} {getattr(old, attribute)}"
                    )
        for old, new in zip(stored, values, strict=True):
            old.data = new.detach()

    def forward(self) -> Tensor:
        """Compute the weight from the stored tensors."""
        first, *rest = self
        value: Tensor = first(*(getattr(self, name) for name in self.stored))
        for module in rest:
            value = module(value)
        return value


def check_result(result: object, original: Tensor) -> None:
    """Raise ModuleValueError unless ``result`` is a tensor of ``original``'s dtype and shape."""
    if not isinstance(result, Tensor):
        raise ModuleValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
    for attribute in ("dtype", "shape"):
        old, new = getattr(original, attribute), getattr(result, attribute)
        if old != new:
            raise ModuleValueError(
                f"Registering a parametrization may not change the {attribute} of the tensor, unless `unsafe`"
                f" flag is enabled.\nunparametrized {attribute}: {old}\nparametrized {attribute}: {new}"
            )


def _check_next(parametrization: Module, value: Tensor, name: str) -> None:
    """Raise ModuleValueError unless ``parametrization`` can follow others whose result is ``value``."""
    check_result(result := parametrization(value), value)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(result)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ModuleValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}. Only the first "
            "parametrization of a weight can store several tensors."
        )
    for attribute in ("dtype", "shape"):
        old, new = getattr(value, attribute), getattr(back, attribute)
        if old != new:
            raise ModuleValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {attribute} as "
                f"module.{name}, unless the `unsafe` flag is enabled.\nmodule.{name}.{attribute}: {old}\n"
                f"returned {attribute}: {new}"
            )


def _check_takes_one(parametrization: Module, name: str) -> None:
    """Raise ModuleValueError if ``parametrization`` takes more than one tensor, as only the first may."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        parameter
        for parameter in inspect.signature(parametrization.forward).parameters.values()
        if parameter.kind in kinds and parameter.default is inspect.Parameter.empty
    ]
    if len(required) > 1:
        raise ModuleValueError(
            f"{type(parametrization).__name__} takes {len(required)} tensors, so it must be the first "
            f"parametrization of '{name}', which has others. Remove them, or register it before them."
        )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module | str, *, unsafe: bool = False
) -> Module:
    """Compute ``module.<tensor_name>`` by ``parametrization``, after its other steps; return ``module``.

    ``parametrization(x)`` returns the weight. Its method ``right_inverse(weight)``, if defined, returns what
    to store: a tensor, or a sequence of tensors that ``parametrization(*tensors)`` takes. ``unsafe`` allows
    shape and dtype to change, without a check. A string is the name of a plugin's parametrization, created
    without arguments.

    Raises ModuleValueError if there is no such tensor, or if its shape or dtype would change; the module is
    then unchanged.

    >>> import tenon
    >>> class Symmetric(tenon.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = register_parametrization(tenon.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    """
    if isinstance(parametrization, str):
        parametrization = _from_plugin(parametrization)
    parametrization.train(module.training)
    pipeline = pipeline_of(module, tensor_name)
    if pipeline is not None and pipeline.listed(module):
        if unsafe:
            _check_takes_one(parametrization, tensor_name)
        else:
            _check_next(parametrization, getattr(module, tensor_name), tensor_name)
        parametrizations: ParametrizationList = module.parametrizations[tensor_name]
        parametrizations.append(parametrization)
        parametrizations.unsafe |= unsafe
        pipeline.steps.append(Parametrized(tensor_name, len(parametrizations) - 1))
    elif pipeline is not None:
        _follow_masks(module, pipeline, parametrization, unsafe)
    elif (original := stored_tensor(module, tensor_name)) is not None:
        check_name_is_free(module, tensor_name)
        listed = ParametrizationList([parametrization], original, unsafe)
        _, persistent = take(module, tensor_name)
        _add_list(module, tensor_name, listed, persistent)
        open_pipeline(module, tensor_name, listed.stored).steps.append(Parametrized(tensor_name, 0))
    else:
        raise ModuleValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    forget()
    return module


def _from_plugin(name: str) -> Module:
    """Return a new instance of the parametrization that a plugin offers under ``name``."""
    return resolve("parametrizations", name)()


def _add_list(module: Module, name: str, listed: ParametrizationList, persistent: bool) -> None:
    """Register ``listed`` as ``module.parametrizations.<name>``."""
    if not persistent:
        listed._non_persistent_buffers_set.update(listed.stored)
    if "parametrizations" not in module._modules:
        module.parametrizations = ModuleDict()
    module.parametrizations[name] = listed


def _follow_masks(module: Module, pipeline: Pipeline, parametrization: Module, unsafe: bool) -> None:
    """Add the first parametrization of a weight with masks; the stored tensor moves to its list.

    A parametrization that stores several tensors has no other input, so it becomes the first step.
    """
    name = pipeline.name
    if pipeline.stored != (f"{name}_orig",) or not all(step.is_mask for step in pipeline.steps):
        raise ModuleValueError(
            f"'{name}' has the older weight_norm or spectral_norm, or is quantized, and no parametrization"
            f" can follow these. Replace such a norm by that of tenon.nn.utils.parametrizations;"
            " quantize last."
        )
    with no_grad():
        value = pipeline.value(module)
    original = getattr(module, f"{name}_orig")
    listed = ParametrizationList._storing_in([parametrization], original, value, unsafe)
    if not listed.is_tensor:
        listed = ParametrizationList([parametrization], original, unsafe)  # the masks come after it
    _, persistent = take(module, f"{name}_orig")
    _add_list(module, name, listed, persistent)
    step = Parametrized(name, 0)
    pipeline.steps = [*pipeline.steps, step] if listed.is_tensor else [step, *pipeline.steps]
    pipeline.stored = listed.stored
    pipeline.alias(module)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether ``module``, or its tensor ``tensor_name``, is parametrized."""
    parametrizations = module._modules.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Remove all parametrizations of ``tensor_name``; return ``module``.

    With ``leave_parametrized`` the weight keeps its value, and all steps up to the last parametrization are
    folded into it. Without, the stored tensor becomes the weight, masked as before; raises ModuleValueError
    if several tensors are stored.
    """
    pipeline = pipeline_of(module, tensor_name)
    if pipeline is None or not pipeline.listed(module):
        raise ModuleValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    if leave_parametrized:
        last = max(i for i, step in enumerate(pipeline.steps) if type(step) is Parametrized)
        pipeline.bake(module, last + 1)
    elif pipeline.stored != ("original",):
        raise ModuleValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms "
            "of a sequence of tensors."
        )
    else:
        pipeline.drop_parametrizations(module)
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the class of ``module``, which parametrizing does not change here."""
    return type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Share the parametrizations of ``from_module``, and their tensors, with ``to_module``; return the
    latter.

    ``tensor_name`` transfers those of one tensor only, which ``to_module`` need not have; raises ModuleError
    if it is not parametrized. Does nothing if ``from_module`` is not parametrized at all.
    """
    if not is_parametrized(from_module):
        return to_module
    if not is_parametrized(from_module, tensor_name):
        raise ModuleError(
            f"transfer_parametrizations_and_params: {from_module._get_name()} has no parametrizations of"
            f" {tensor_name!r} to transfer."
        )
    source: Mapping[str, ParametrizationList] = from_module.parametrizations
    for name in list(source) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name) and name not in computed(to_module):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for parametrization in source[name]:
            register_parametrization(to_module, name, parametrization)
        target: ModuleDict = to_module.parametrizations
        for stored in source[name].stored:
            setattr(target[name], stored, getattr(source[name], stored))
    return to_module
