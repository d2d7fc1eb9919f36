"""PyTorch's ``nn.utils.parametrize``: weights that modules compute from stored tensors.

``register_parametrization(layer, "weight", module)`` puts ``module`` into the pipeline of ``layer.weight``
(``nn/weights.py``). The stored tensor moves to ``layer.parametrizations.weight.original``, or ``original0``,
``original1``, ... if ``right_inverse`` returns several tensors.

Unlike in torch the class of the layer stays what it is, so the layer can be pickled; its text says
``ParametrizedLinear`` all the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tenon.engine.grad_mode import no_grad
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
    """The parametrizations of one weight in order, and the tensors that the first is computed from.

    Called, it computes the weight; masks between parametrizations are no part of it.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        """Ask the right inverses, last first, what to store so that the weight is ``original``.

        ModuleValueError if that changes the dtype or device of the one tensor stored or, unless ``unsafe``,
        the dtype or shape of the weight; ``original`` then keeps its data.
        """
        self._begin(modules, unsafe)
        self._fill(original, original)

    @classmethod
    def _around(cls, modules: Sequence[Module], original: Tensor, value: Tensor, unsafe: bool) -> Any:
        """A list that shall give ``value`` and stores in ``original``, which has another value."""
        made = cls.__new__(cls)
        made._begin(modules, unsafe)
        made._fill(original, value)
        return made

    def _begin(self, modules: Sequence[Module], unsafe: bool) -> None:
        if not modules:
            raise ModuleValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe

    def _fill(self, original: Any, value: Tensor) -> None:
        data = original.data
        try:
            self._store_inverse(original, value)
            if not self.unsafe:
                check_result(self(), data)
        except BaseException:
            original.data = data
            raise

    def _store_inverse(self, original: Any, value: Any) -> None:
        with no_grad():
            new = value
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    # torch's way to say that a map has no inverse: keep what is stored.
                    with suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if isinstance(new, Tensor):
            self.is_tensor, self.ntensors = True, 1
            for what in ("dtype", "device"):
                old, got = getattr(original, what), getattr(new, what)
                if old != got:
                    raise ModuleValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                        f"original.{what}: {old}\nright_inverse(original).{what}: {got}"
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
        for i, each in enumerate(new):
            if not isinstance(each, Tensor):
                raise ModuleValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got element {i} of the sequence with type {type(each).__name__}."
                )
        self.is_tensor, self.ntensors = False, len(new)
        for i, each in enumerate(new):
            learned = isinstance(original, Parameter)
            tensor = Parameter(each, original.requires_grad) if learned else each.detach()
            put(self, f"original{i}", tensor)

    @property
    def stored(self) -> tuple[str, ...]:
        """Names of the tensors that the first parametrization takes."""
        return ("original",) if self.is_tensor else tuple(f"original{i}" for i in range(self.ntensors))

    def restart(self, tensor: Any, modules: Sequence[Module], persistent: bool) -> None:
        """Store ``tensor`` instead of what has been taken away, and keep only ``modules``."""
        self._modules = {str(i): module for i, module in enumerate(modules)}
        self.is_tensor, self.ntensors = True, 1
        put(self, "original", tensor, persistent)

    def right_inverse(self, value: Tensor) -> None:
        """Store what makes the weight ``value``; what ``layer.weight = value`` does.

        ModuleError where a parametrization has no ``right_inverse``, ModuleValueError where what it returns
        does not fit what is stored. Nothing is stored then.
        """
        with no_grad():
            new: Any = value
            for module in reversed(list(self)):
                new = inverse(module, new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ModuleValueError(
                        f"`right_inverse` should return a tensor. Got {type(new).__name__}"
                    )
                given = [new]
            else:
                if not isinstance(new, Sequence):
                    raise ModuleValueError(
                        f"'right_inverse' must return a sequence of tensors. Got {type(new).__name__}."
                    )
                given = list(new)
                if len(given) != self.ntensors:
                    raise ModuleValueError(
                        f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                        f"Got a sequence of length {len(given)}."
                    )
            self._exchange(given)

    def _exchange(self, given: list[Any]) -> None:
        stored = [getattr(self, name) for name in self.stored]
        for i, (name, old, new) in enumerate(zip(self.stored, stored, given, strict=True)):
            said = "The tensor" if self.is_tensor else f"Tensor {i}"
            if not isinstance(new, Tensor):
                raise ModuleValueError(f"{said} returned by `right_inverse` is a {type(new).__name__}")
            for what in ("dtype", "device"):
                if getattr(new, what) != getattr(old, what):
                    raise ModuleValueError(
                        f"{said} returned by `right_inverse` has {what} {getattr(new, what)} while `{name}` "
                        f"has {what} {getattr(old, what)}"
                    )
        for old, new in zip(stored, given, strict=True):
            old.data = new.detach()

    def forward(self) -> Any:
        """The weight, from what is stored."""
        value: Any = None
        for i, module in enumerate(self):
            value = module(value) if i else module(*(getattr(self, name) for name in self.stored))
        return value


def check_result(result: Any, original: Any) -> None:
    """Raise ModuleValueError unless ``result`` is a tensor of ``original``'s dtype and shape."""
    if not isinstance(result, Tensor):
        raise ModuleValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
    for what in ("dtype", "shape"):
        old, new = getattr(original, what), getattr(result, what)
        if old != new:
            raise ModuleValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag"
                f" is enabled.\nunparametrized {what}: {old}\nparametrized {what}: {new}"
            )


def _check_next(parametrization: Any, value: Any, name: str) -> None:
    """ModuleValueError unless ``parametrization`` can follow others that give ``value``."""
    check_result(made := parametrization(value), value)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(made)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ModuleValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}. Only the first "
            "parametrization of a weight can store several tensors."
        )
    for what in ("dtype", "shape"):
        old, new = getattr(value, what), getattr(back, what)
        if old != new:
            raise ModuleValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as "
                f"module.{name}, unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: {old}\n"
                f"returned {what}: {new}"
            )


def _check_takes_one(parametrization: Any, name: str) -> None:
    """ModuleValueError if ``parametrization`` needs more than the one tensor that comes from those before."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        each
        for each in inspect.signature(parametrization.forward).parameters.values()
        if each.kind in kinds and each.default is inspect.Parameter.empty
    ]
    if len(needed) > 1:
        raise ModuleValueError(
            f"{type(parametrization).__name__} takes {len(needed)} tensors, so it must be the first "
            f"parametrization of '{name}', which has others. Remove them, or register it before them."
        )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module | str, *, unsafe: bool = False
) -> Module:
    """Compute ``module.<tensor_name>`` by ``parametrization``, after its other steps; return ``module``.

    ``parametrization(x)`` gives the weight; ``right_inverse(weight)``, if it has that, what to store for it:
    a tensor, or a sequence of tensors that ``parametrization(*tensors)`` takes. ``unsafe`` allows that shape
    and dtype change, unchecked. A name stands for what a plugin offers, made without arguments.

    ModuleValueError if there is no such tensor, or it would change; the module is then as it was.

    >>> import tenon
    >>> class Symmetric(tenon.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = register_parametrization(tenon.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    """
    made: Any = (
        resolve("parametrizations", parametrization)()
        if isinstance(parametrization, str)
        else (parametrization)
    )
    made.train(module.training)
    pipeline = pipeline_of(module, tensor_name)
    if pipeline is not None and pipeline.listed(module):
        if unsafe:
            _check_takes_one(made, tensor_name)
        else:
            _check_next(made, getattr(module, tensor_name), tensor_name)
        parametrizations: Any = module.parametrizations[tensor_name]
        parametrizations.append(made)
        parametrizations.unsafe |= unsafe
        pipeline.steps.append(Parametrized(tensor_name, len(parametrizations) - 1))
    elif pipeline is not None:
        _follow_masks(module, pipeline, made, unsafe)
    elif stored_tensor(module, tensor_name) is not None:
        check_name_is_free(module, tensor_name)
        listed = ParametrizationList([made], stored_tensor(module, tensor_name), unsafe)
        _, persistent = take(module, tensor_name)
        _list(module, tensor_name, listed, persistent)
        open_pipeline(module, tensor_name, listed.stored).steps.append(Parametrized(tensor_name, 0))
    else:
        raise ModuleValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    forget()
    return module


def _list(module: Any, name: str, listed: ParametrizationList, persistent: bool) -> None:
    if not persistent:
        listed._non_persistent_buffers_set.update(listed.stored)
    if "parametrizations" not in module._modules:
        module.parametrizations = ModuleDict()
    module.parametrizations[name] = listed


def _follow_masks(module: Any, pipeline: Pipeline, made: Any, unsafe: bool) -> None:
    """The first parametrization of a weight that is masked: what is stored moves to the list.

    One that stores several tensors takes the place of the stored one, before the masks: it has no input.
    """
    name = pipeline.name
    if pipeline.stored != (f"{name}_orig",) or not all(step.is_mask for step in pipeline.steps):
        raise ModuleValueError(
            f"'{name}' has the older weight_norm or spectral_norm, or is stored as few bits, which no"
            " parametrization can follow. Replace such a norm by that of tenon.nn.utils.parametrizations;"
            " quantize last."
        )
    with no_grad():
        value = pipeline.value(module)
    original = stored_tensor(module, f"{name}_orig")
    listed = ParametrizationList._around([made], original, value, unsafe)
    if not listed.is_tensor:
        listed = ParametrizationList([made], original, unsafe)  # the masks come after it
    _, persistent = take(module, f"{name}_orig")
    _list(module, name, listed, persistent)
    step = Parametrized(name, 0)
    pipeline.steps = [*pipeline.steps, step] if listed.is_tensor else [step, *pipeline.steps]
    pipeline.stored = listed.stored
    pipeline.alias(module)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether ``module`` has parametrizations; those of ``tensor_name`` if that is given."""
    parametrizations = module._modules.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Remove all parametrizations of ``tensor_name``; return ``module``.

    ``leave_parametrized``: the weight keeps its value, and steps before the last parametrization become part
    of it. Without, what is stored becomes the weight, masked as before; ModuleValueError where several
    tensors are stored.
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
    """The class of ``module``: parametrizing does not change it here."""
    return type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Share the parametrizations of ``from_module``, and their tensors, with ``to_module``; return that.

    Both share them afterwards. ``tensor_name`` transfers those of one tensor only, which ``to_module`` need
    not have; ModuleError if it has none. A module without any has nothing to transfer.
    """
    if not is_parametrized(from_module):
        return to_module
    if not is_parametrized(from_module, tensor_name):
        raise ModuleError(
            f"transfer_parametrizations_and_params: {from_module._get_name()} has no parametrizations of"
            f" {tensor_name!r} to transfer."
        )
    given: Any = from_module.parametrizations
    for name in list(given) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name) and name not in computed(to_module):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for parametrization in given[name]:
            register_parametrization(to_module, name, parametrization)
        taken: Any = to_module.parametrizations
        for stored in given[name].stored:
            setattr(taken[name], stored, getattr(given[name], stored))
    return to_module
