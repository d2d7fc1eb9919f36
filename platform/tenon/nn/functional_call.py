"""Call a module with other parameters and buffers, without changing the module (``torch.func``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenon.engine.op import table
from tenon.errors import ModuleError, ModuleTypeError, ModuleValueError
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

_MISSING: Any = object()


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Tensor | Sequence[Tensor] | None = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
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
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        given = _joined(parameter_and_buffer_dicts)
    else:
        raise ModuleValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with replaced(module, given, tie_weights=tie_weights, strict=strict):
        return module(*positional, **(kwargs or {}))


def _joined(dicts: Sequence[Any]) -> dict[str, Any]:
    if not all(isinstance(each, dict) for each in dicts):
        raise ModuleValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    names = [name for each in dicts for name in each]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ModuleValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
        )
    return {name: value for each in dicts for name, value in each.items()}


@contextmanager
def replaced(module: Module, given: dict[str, Any], *, tie_weights: bool, strict: bool) -> Iterator[None]:
    """Context manager: ``module`` has the tensors of ``given`` inside, and its own again afterwards."""
    values = _with_tied_names(module, given) if tie_weights else given
    if strict:
        _check_names(module, values)
    targets = {name: _target(module, name) for name in values}
    for name, value in values.items():
        if value is not None and not isinstance(value, Tensor):
            raise ModuleTypeError(f"{value} is not an instance of torch.Tensor (value of {name!r})")
    own: dict[str, Any] = {}
    try:
        for name, value in values.items():
            own[name] = _swap(*targets[name], value)
        yield
    finally:
        for name, value in reversed(own.items()):
            current = _swap(*targets[name], value)
            if name in given and current is not _MISSING:
                given[name] = current


def _target(module: Module, name: str) -> tuple[Any, str]:
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    if last == "":
        raise KeyError(f'tensor name can\'t be empty string "" (in {name!r})')
    held = getattr(owner, last, None)
    if held is not None and not isinstance(held, Tensor):
        raise ModuleTypeError(f"attribute `{name}`: {held} is not an instance of torch.Tensor")
    return owner, last


def _swap(owner: Any, name: str, value: Tensor) -> Tensor:
    """Set the member ``name`` to ``value``, or delete it; return the previous value (or ``_MISSING``)."""
    for registry in (owner._parameters, owner._buffers):
        if name in registry:
            held = registry[name]
            if value is _MISSING:
                del registry[name]
            else:
                registry[name] = value
            return held
    held = getattr(owner, name, _MISSING)
    if value is not _MISSING:
        setattr(owner, name, value)
    elif held is not _MISSING:
        delattr(owner, name)
    return held


def _named_tensors(module: Module) -> dict[str, Any]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _with_tied_names(module: Module, given: dict[str, Any]) -> dict[str, Any]:
    """Return ``given`` with each value also under the other names of the shared tensor that it replaces."""
    names_of: dict[int, list[str]] = {}
    for name, tensor in _named_tensors(module).items():
        names_of.setdefault(id(tensor), []).append(name)
    values = dict(given)
    for names in names_of.values():
        chosen = [name for name in names if name in given]
        if not chosen or len(names) == 1:
            continue
        if any(given[name] is not given[chosen[0]] for name in chosen):
            raise ModuleValueError(
                f"functional_call got multiple values for keys {sorted(names)}, which are tied. "
                "Consider using tie_weights=False"
            )
        values.update(dict.fromkeys(names, given[chosen[0]]))
    return values


def _check_names(module: Module, given: dict[str, Any]) -> None:
    known = set(_named_tensors(module))
    problems = []
    for title, names in (("Unexpected", given.keys() - known), ("Missing", known - given.keys())):
        if names:
            problems.append(f"{title} key(s): {', '.join(map(repr, sorted(names)))}.")
    if problems:
        joined = "\n\t".join(problems)
        raise ModuleError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{joined}")


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stack the parameters and buffers of equal modules by name: new leaves, for ensembles with ``vmap``."""
    models = list(models)
    if not models:
        raise ModuleError("stack_module_state: Expected at least one model, got 0.")
    if len({each.training for each in models}) > 1:
        raise ModuleError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(each) for each in models}) > 1:
        raise ModuleError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(each.named_parameters()) for each in models]
    buffers = [dict(each.named_buffers()) for each in models]
    return (
        {name: _stacked([each[name] for each in parameters], name) for name in parameters[0]},
        {name: _stacked([each[name] for each in buffers], name) for name in buffers[0]},
    )


def _stacked(tensors: list[Any], name: str) -> Any:
    if len({tensor.requires_grad for tensor in tensors}) > 1:
        raise ModuleError(f"Expected {name} from each model to have the same .requires_grad")
    stacked = table.cat(*(tensor.unsqueeze(0) for tensor in tensors), axis=0)
    return stacked.detach().requires_grad_() if tensors[0].requires_grad else stacked
