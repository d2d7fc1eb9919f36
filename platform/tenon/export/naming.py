"""The labels of a captured graph's inputs: names of arguments, parameters, buffers, state and scalars."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.export.signature import ScalarInput, leaf_paths
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.export.recorder import CaptureRecorder

#: Labels and kinds of tensors, by id of their array.
Labels = dict[int, tuple[str, str]]


def argument_names(
    function: Callable[..., Nested], args: tuple[Nested, ...], kwargs: Mapping[str, Nested]
) -> list[str]:
    """Return a name for each leaf of ``(args, kwargs)``: that of the parameter, and the path in a container.

    ArgumentError if the function does not take these arguments.
    """
    target = function.forward if isinstance(function, Module) else function
    bases = [f"argument{i}" for i in range(len(args))]
    try:
        signature = inspect.signature(target)
    except ValueError:  # a function that Python has no signature of
        signature = None
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"{getattr(target, '__qualname__', target)} does not take the {len(args)} examples that were "
                f"given: {error}."
            ) from None
        parameters = iter(signature.parameters.values())
        for i in range(len(args)):
            parameter = next(parameters)
            if parameter.kind is parameter.VAR_POSITIONAL:
                bases[i:] = [f"{parameter.name}.{k}" for k in range(len(args) - i)]
                break
            bases[i] = parameter.name
    pairs = [*zip(bases, args, strict=True), *kwargs.items()]
    return [".".join((base, *path)) for base, value in pairs for path in leaf_paths(value)]


def label_states(
    recorder: CaptureRecorder, function: Callable[..., Nested], taken: set[str]
) -> dict[str, str]:
    """Label the inputs that are not arguments; return the kind of each label.

    ``taken`` are the labels of the arguments.
    """
    known = _known(recorder, function)
    kinds: dict[str, str] = {}
    for key, (node, _) in recorder.outside.items():
        label, kind = known.get(key, ("tensor", "tensor"))
        unique, number = label, 0
        while unique in kinds or unique in taken:
            number += 1
            unique = f"{label}_{number}"
        node.label = unique
        kinds[unique] = kind
    return kinds


def aliases_of(
    recorder: CaptureRecorder, function: Callable[..., Nested], states: Mapping[str, str]
) -> dict[str, str]:
    """Return the other names of labelled parameters and buffers, which modules hold at several places."""
    labels = {key: node.label for key, (node, _) in recorder.outside.items()}
    aliases: dict[str, str] = {}
    for prefix, root in _roots(recorder, function, _variables(function)):
        for name, tensor in named_tensors(root):
            label, joined = labels.get(id(tensor.raw)), _joined(prefix, name)
            if label is not None and joined != label and joined not in states:
                aliases[joined] = label
    return aliases


def named_tensors(root: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and then buffers by all of their names."""
    yield from root.named_parameters(remove_duplicate=False)
    yield from root.named_buffers(remove_duplicate=False)


def _known(recorder: CaptureRecorder, function: Callable[..., Nested]) -> Labels:
    """Return the labels of all tensors that have a name."""
    labels: Labels = {}
    variables = _variables(function)
    for prefix, root in _roots(recorder, function, variables):
        for module_path, module in root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    labels.setdefault(id(value.raw), (_joined(prefix, module_path, name), "tensor"))
        for name, buffer in root.named_buffers():
            labels[id(buffer.raw)] = (_joined(prefix, name), "buffer")
        for name, parameter in root.named_parameters():
            labels[id(parameter.raw)] = (_joined(prefix, name), "parameter")
    for name, value in variables.items():
        if isinstance(value, Tensor):
            kind = "parameter" if value.requires_grad else "tensor"
            labels.setdefault(id(value.raw), (name, kind))
    for number, (optimizer, _) in enumerate(recorder.states_before.values()):
        prefix = f"optimizer{number or ''}"
        position = 0
        for group in optimizer.param_groups:
            for p in group["params"]:
                owner, _ = labels.setdefault(id(p.raw), (f"parameter{position}", "parameter"))
                position += 1
                for name, value in optimizer.state.get(p, {}).items():
                    if isinstance(value, Tensor):
                        labels[id(value.raw)] = (f"{prefix}.{owner}.{name}", "optimizer")
    for leaf, grad in recorder.gradients_before.values():
        if grad is not None:
            owner, _ = labels.get(id(leaf.raw), ("parameter", "parameter"))
            labels[id(grad.raw)] = (f"{owner}.grad", "gradient")
    return labels


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _variables(function: Callable[..., Nested]) -> dict[str, object]:
    """Return the variables from outside that the code of ``function`` names."""
    own = getattr(function, "__func__", function)
    if not inspect.isfunction(own):
        return {}
    closed = inspect.getclosurevars(own)
    return {**closed.globals, **closed.nonlocals}


def _roots(
    recorder: CaptureRecorder, function: Callable[..., Nested], variables: Mapping[str, object]
) -> Iterator[tuple[str, Module]]:
    """Yield the modules that name parameters, each with a prefix: none if only one has any."""
    owner = function if isinstance(function, Module) else getattr(function, "__self__", None)
    candidates = [("model", owner)] if isinstance(owner, Module) else []
    candidates += [(name, each) for name, each in variables.items() if isinstance(each, Module)]
    candidates += [(type(each).__name__.lower(), each) for each in recorder.roots.values()]
    seen: set[int] = set()
    roots: list[tuple[str, Module]] = []
    for name, module in candidates:
        has_state = any(True for _ in (*module.parameters(), *module.buffers()))
        if id(module) not in seen and (has_state or module is owner):
            roots.append((name, module))
            seen |= {id(each) for each in module.modules()}
    if len(roots) == 1:
        yield "", roots[0][1]
        return
    used: set[str] = set()
    for name, module in roots:
        prefix, number = name, 0
        while prefix in used:
            number += 1
            prefix = f"{name}{number}"
        used.add(prefix)
        yield prefix, module


def label_scalars(recorder: CaptureRecorder) -> list[ScalarInput]:
    """Label the scalar inputs by optimizer, group and option; return them."""
    places: dict[object, str] = {}
    for number, (optimizer, _) in enumerate(recorder.states_before.values()):
        prefix = f"optimizer{number or ''}"
        places[id(optimizer)] = prefix
        alone = len(optimizer.param_groups) == 1
        for index, group in enumerate(optimizer.param_groups):
            places[id(group)] = prefix if alone else f"{prefix}.groups.{index}"
    scalars: list[ScalarInput] = []
    used: set[str] = set()
    for node, key, value, option in recorder.scalar_inputs:
        assert isinstance(key, tuple)
        is_step = option == "step" and isinstance(key[1], int)
        # An option that is a tuple has a key of three parts, the last the position in it.
        name = key[1] if is_step or len(key) == 2 else f"{key[1]}.{key[2]}"
        label = f"{places[key[0]]}.{'step' if is_step else name}"
        unique, number = label, 0
        while unique in used:
            number += 1
            unique = f"{label}.{number}"
        used.add(unique)
        node.label = unique
        scalars.append(ScalarInput(unique, value, 1.0 if is_step else 0.0))
    return scalars
