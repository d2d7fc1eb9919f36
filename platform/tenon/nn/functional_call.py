"""Call a module with other parameters and buffers, without changing the module (``torch.func``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenon.engine.op import table
from tenon.engine.types import Forwarded, Nested
from tenon.errors import ModuleError, ModuleTypeError, ModuleValueError
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

_MISSING: Any = object()  # in ``_swap``: there is no tensor


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Tensor | Sequence[Tensor] | None = None,
    kwargs: dict[str, Forwarded] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Nested:
    """Call ``module(*args, **kwargs)`` with the named parameters and buffers replaced for this call.

    ``args`` that is not a tuple is a single argument. ``tie_weights``: a value for one name of a shared
    tensor applies to all its names. ``strict``: the names must be exactly the module's. If the module assigns
    to a replaced buffer, the dict contains the new value afterwards.

    >>> import tenon
    >>> layer = tenon.nn.Linear(2, 1)
    >>> zero = {"weight": tenon.zeros(1, 2), "bias": tenon.zeros(1)}
    >>> tenon.func.functional_call(layer, zero, tenon.ones(1, 2))
    tensor([[0.]])
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        tensors = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        tensors = _merged(parameter_and_buffer_dicts)
    else:
        raise ModuleValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with replaced(module, tensors, tie_weights=tie_weights, strict=strict):
        return module(*positional, **(kwargs or {}))


def _merged(dicts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the union of ``dicts``; raise ModuleValueError if a name occurs twice."""
    if not all(isinstance(tensors, dict) for tensors in dicts):
        raise ModuleValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    names = [name for tensors in dicts for name in tensors]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ModuleValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
        )
    return {name: value for tensors in dicts for name, value in tensors.items()}


@contextmanager
def replaced(
    module: Module, tensors: dict[str, Tensor], *, tie_weights: bool, strict: bool
) -> Iterator[None]:
    """Context manager that replaces tensors of ``module`` by ``tensors``, by path, and restores them at its
    end.

    Tensors that the module assigns to these paths in the meantime are put into ``tensors``.
    """
    values = _with_tied_names(module, tensors) if tie_weights else tensors
    if strict:
        _check_names(module, values)
    targets = {name: _target(module, name) for name in values}
    for name, value in values.items():
        if value is not None and not isinstance(value, Tensor):
            raise ModuleTypeError(f"{value} is not an instance of torch.Tensor (value of {name!r})")
    originals: dict[str, Tensor] = {}
    try:
        for name, value in values.items():
            originals[name] = _swap(*targets[name], value)
        yield
    finally:
        for name, value in reversed(originals.items()):
            current = _swap(*targets[name], value)
            if name in tensors and current is not _MISSING:
                tensors[name] = current


def _target(module: Module, name: str) -> tuple[Module, str]:
    """Return the owner and the attribute name of the tensor at path ``name``."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    if last == "":
        raise KeyError(f'tensor name can\'t be empty string "" (in {name!r})')
    current = getattr(owner, last, None)
    if current is not None and not isinstance(current, Tensor):
        raise ModuleTypeError(f"attribute `{name}`: {current} is not an instance of torch.Tensor")
    return owner, last


def _swap(owner: Module, name: str, value: Tensor) -> Tensor:
    """Set the member ``name`` to ``value``, or delete it; return the previous value (or ``_MISSING``)."""
    # Their values have different types.
    registries: tuple[dict[str, Any], ...] = (owner._parameters, owner._buffers)
    for registry in registries:
        if name in registry:
            previous = registry[name]
            if value is _MISSING:
                del registry[name]
            else:
                registry[name] = value
            return previous
    previous = getattr(owner, name, _MISSING)
    if value is not _MISSING:
        setattr(owner, name, value)
    elif previous is not _MISSING:
        delattr(owner, name)
    return previous


def _named_tensors(module: Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by path, shared ones under all their paths."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _with_tied_names(module: Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return ``tensors`` with each value also under the other names of the shared tensor that it replaces."""
    names_of: dict[int, list[str]] = {}
    for name, tensor in _named_tensors(module).items():
        names_of.setdefault(id(tensor), []).append(name)
    values = dict(tensors)
    for names in names_of.values():
        replaced_names = [name for name in names if name in tensors]
        if not replaced_names or len(names) == 1:
            continue
        value = tensors[replaced_names[0]]
        if any(tensors[name] is not value for name in replaced_names):
            raise ModuleValueError(
                f"functional_call got multiple values for keys {sorted(names)}, which are tied. "
                "Consider using tie_weights=False"
            )
        values.update(dict.fromkeys(names, value))
    return values


def _check_names(module: Module, tensors: dict[str, Tensor]) -> None:
    """Raise ModuleError unless the names are those of all parameters and buffers of ``module``."""
    known = set(_named_tensors(module))
    problems = []
    for title, names in (("Unexpected", tensors.keys() - known), ("Missing", known - tensors.keys())):
        if names:
            problems.append(f"{title} key(s): {', '.join(map(repr, sorted(names)))}.")
    if problems:
        joined = "\n\t".join(problems)
        raise ModuleError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{joined}")


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stack the parameters and buffers of equal modules by name: new leaves, for ensembles with ``vmap``."""
    models = list(models)
    if not models:
        raise ModuleError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise ModuleError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise ModuleError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    return (
        {name: _stack([tensors[name] for tensors in parameters], name) for name in parameters[0]},
        {name: _stack([tensors[name] for tensors in buffers], name) for name in buffers[0]},
    )


def _stack(tensors: Sequence[Tensor], name: str) -> Tensor:
    """Return ``tensors`` stacked along a new first axis, as a leaf."""
    if len({tensor.requires_grad for tensor in tensors}) > 1:
        raise ModuleError(f"Expected {name} from each model to have the same .requires_grad")
    stacked = table.cat(*(tensor.unsqueeze(0) for tensor in tensors), axis=0)
    return stacked.detach().requires_grad_() if tensors[0].requires_grad else stacked
