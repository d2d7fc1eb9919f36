"""Styles that convert what a module is called with and what it returns: ``PrepareModuleInput`` and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tenon.distributed.tensor.parallel.parallel_style import ParallelStyle, StyleError, as_placed
from tenon.distributed.tensor.placement_types import Placement
from tenon.engine.types import Forwarded
from tenon.errors import ModuleValueError

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh
    from tenon.nn.module import Module

#: One placement, or one for each input or output; None for what is not converted.
Layouts = Placement | Sequence[Placement | None] | None


class PrepareModuleInput(ParallelStyle):
    """Convert the inputs of a module to DTensors by ``input_layouts``, and redistribute them to
    ``desired_input_layouts``.

    Both have one placement for each positional input, or None for an input that stays as it is;
    ``input_kwarg_layouts`` and ``desired_input_kwarg_layouts`` are dicts for keyword inputs. With
    ``use_local_output`` the module gets this rank's parts, plain tensors.

    Raises ``StyleError`` for layouts of different lengths.
    Source: torch.distributed.tensor.parallel.PrepareModuleInput.
    """

    _shards = False

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = _several(input_layouts)
        self.desired_input_layouts = _several(desired_input_layouts)
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise StyleError(
                    "desired module inputs should not be None! Pass desired_input_layouts= beside"
                    f" input_layouts={self.input_layouts}."
                )
            _check_lengths("input_layouts", self.input_layouts, self.desired_input_layouts)
        self.with_kwargs = input_kwarg_layouts is not None
        self.input_kwarg_layouts = dict(input_kwarg_layouts or {})
        self.desired_input_kwarg_layouts = dict(desired_input_kwarg_layouts or {})
        if self.with_kwargs:
            _check_lengths("input_kwarg_layouts", self.input_kwarg_layouts, self.desired_input_kwarg_layouts)

    def _prepared(
        self, value: object, mesh: DeviceMesh, layout: Placement | None, desired: Placement | None, what: str
    ) -> object:
        if layout is None:
            return value
        placed = as_placed(value, mesh, layout, desired, what)
        return placed.to_local() if self.use_local_output else placed

    def _prepared_inputs(self, inputs: tuple[object, ...], mesh: DeviceMesh) -> tuple[object, ...]:
        layouts, desired = self.input_layouts, self.desired_input_layouts
        if layouts is None or desired is None:
            return inputs
        if len(inputs) != len(layouts):
            raise ModuleValueError(
                f"module inputs and input_layouts should have same length! Got {len(inputs)} positional"
                f" inputs and {len(layouts)} layouts, {layouts}."
            )
        return tuple(
            self._prepared(value, mesh, layout, then, f"input {i}")
            for i, (value, layout, then) in enumerate(zip(inputs, layouts, desired, strict=True))
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(
            module: Module, inputs: tuple[object, ...], kwargs: dict[str, object]
        ) -> tuple[tuple[object, ...], dict[str, object]]:
            prepared = {
                key: self._prepared(
                    value,
                    device_mesh,
                    self.input_kwarg_layouts.get(key),
                    self.desired_input_kwarg_layouts.get(key),
                    f"input {key!r}",
                )
                for key, value in kwargs.items()
            }
            return self._prepared_inputs(inputs, device_mesh), prepared

        module.register_forward_pre_hook(prepare, with_kwargs=True)
        return module

    def __repr__(self) -> str:
        return (
            f"PrepareModuleInput(input_layouts={self.input_layouts},"
            f" desired_input_layouts={self.desired_input_layouts},"
            f" input_kwarg_layouts={self.input_kwarg_layouts},"
            f" desired_input_kwarg_layouts={self.desired_input_kwarg_layouts},"
            f" use_local_output={self.use_local_output})"
        )


class PrepareModuleOutput(ParallelStyle):
    """Convert the outputs of a module to DTensors by ``output_layouts``, and redistribute them to
    ``desired_output_layouts``.

    Both have one placement for each output; None for one that stays as it is. With ``use_local_output`` the
    results are this rank's parts, plain tensors.

    Raises ``StyleError`` for layouts of different lengths.
    Source: torch.distributed.tensor.parallel.PrepareModuleOutput.
    """

    _shards = False

    def __init__(
        self,
        *,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.output_layouts = _several(output_layouts) or ()
        self.desired_output_layouts = _several(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        _check_lengths("output_layouts", self.output_layouts, self.desired_output_layouts)

    def _prepared_outputs(self, outputs: object, mesh: DeviceMesh) -> object:
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(given) != len(self.output_layouts):
            raise ModuleValueError(
                f"module outputs and output_layouts should have same length! Got {len(given)} outputs and"
                f" {len(self.output_layouts)} layouts, {self.output_layouts}."
            )
        prepared: list[object] = []
        each = zip(given, self.output_layouts, self.desired_output_layouts, strict=True)
        for i, (value, layout, desired) in enumerate(each):
            if layout is None:
                prepared.append(value)
                continue
            placed = as_placed(value, mesh, layout, desired, f"output {i}")
            prepared.append(placed.to_local() if self.use_local_output else placed)
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def prepare(module: Module, inputs: Forwarded, outputs: Forwarded) -> Forwarded:
            return self._prepared_outputs(outputs, device_mesh)

        module.register_forward_hook(prepare)
        return module

    def __repr__(self) -> str:
        return (
            f"PrepareModuleOutput(output_layouts={self.output_layouts},"
            f" desired_output_layouts={self.desired_output_layouts},"
            f" use_local_output={self.use_local_output})"
        )


class PrepareModuleInputOutput(ParallelStyle):
    """``PrepareModuleInput`` and ``PrepareModuleOutput`` for one module; ``use_local_input`` is the former's
    ``use_local_output``.

    Source: torch.distributed.tensor.parallel.PrepareModuleInputOutput.
    """

    _shards = False

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def __repr__(self) -> str:
        return f"PrepareModuleInputOutput({self.prepare_module_input!r}, {self.prepare_module_output!r})"


def _several(layouts: Layouts) -> tuple[Placement | None, ...] | None:
    """``layouts`` as a tuple; StyleError for what is neither a placement nor None."""
    if layouts is None:
        return None
    result = (layouts,) if isinstance(layouts, Placement) else tuple(layouts)
    for layout in result:
        if layout is not None and not isinstance(layout, Placement):
            raise StyleError(f"layout {layout!r} is not a placement. Use Shard(dim), Replicate() or None.")
    return result


def _check_lengths(name: str, layouts: Sequence[object] | Mapping[str, object], desired: object) -> None:
    """Raise StyleError unless there is a desired layout for each: one more than PyTorch checks, for dicts the
    same keys."""
    same = len(layouts) == len(desired)  # type: ignore[arg-type]
    if same and isinstance(layouts, Mapping) and isinstance(desired, Mapping):
        same = layouts.keys() == desired.keys()
    if not same:
        raise StyleError(
            f"{name} and desired_{name} should have same length! Got {layouts} and {desired}: give each input"
            " or output one of both."
        )
