"""PyTorch's ``torch.export.graph_signature``: the roles of the placeholders and outputs of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

__all__ = [
    "ConstantArgument",
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "TensorArgument",
]


class InputKind(Enum):
    """The kind of a placeholder."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    """The kind of an output."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclass(frozen=True)
class TensorArgument:
    """A tensor, by the name of its node."""

    name: str


@dataclass(frozen=True)
class ConstantArgument:
    """A plain value that was captured."""

    name: str
    value: object


Argument: TypeAlias = TensorArgument | ConstantArgument


@dataclass(frozen=True)
class InputSpec:
    """A placeholder; ``target`` is the qualified name of a parameter, buffer or constant."""

    kind: InputKind
    arg: Argument
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclass(frozen=True)
class OutputSpec:
    """An output; ``target`` is the qualified name of the buffer that it is the new value of."""

    kind: OutputKind
    arg: Argument
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass(frozen=True)
class ExportGraphSignature:
    """The inputs and outputs of ``ExportedProgram.graph``, in order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(
            spec.target for spec in self.input_specs if spec.kind is kind and spec.target is not None
        )

    def _by_name(self, kind: InputKind) -> dict[str, str]:
        return {
            spec.arg.name: spec.target
            for spec in self.input_specs
            if spec.kind is kind and spec.target is not None
        }

    def _mutated(self, kind: OutputKind) -> dict[str, str]:
        return {
            spec.arg.name: spec.target
            for spec in self.output_specs
            if spec.kind is kind and spec.target is not None
        }

    @property
    def parameters(self) -> tuple[str, ...]:
        """The qualified names of the parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The qualified names of the buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """The qualified names of the buffers that are not in the state dict."""
        own = [spec for spec in self.input_specs if spec.kind is InputKind.BUFFER and not spec.persistent]
        return tuple(spec.target for spec in own if spec.target is not None)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of the constants."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        """Always empty: objects of C++ classes are not captured."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> tuple[object, ...]:
        """The names of the arguments' placeholders; of plain values the value."""
        own = [spec.arg for spec in self.input_specs if spec.kind is InputKind.USER_INPUT]
        return tuple(arg.name if isinstance(arg, TensorArgument) else arg.value for arg in own)

    @property
    def user_outputs(self) -> tuple[object, ...]:
        """The names of the outputs' nodes; of plain values the value."""
        own = [spec.arg for spec in self.output_specs if spec.kind is OutputKind.USER_OUTPUT]
        return tuple(arg.name if isinstance(arg, TensorArgument) else arg.value for arg in own)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Name of a placeholder -> qualified name of the parameter."""
        return self._by_name(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Name of a placeholder -> qualified name of the buffer."""
        return self._by_name(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Name of a placeholder -> name of the constant."""
        return self._by_name(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """Always empty: objects of C++ classes are not captured."""
        return self._by_name(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Name of an output's node -> qualified name of the buffer that it is the new value of."""
        return self._mutated(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """Name of an output's node -> qualified name of the parameter that it is the new value of."""
        return self._mutated(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Name of an output's node -> name of the argument's placeholder that it is the new value of."""
        return self._mutated(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> None:
        """Always None: gradients are ops of a captured training step, see ``tenon.export.capture``."""
        return None

    @property
    def assertion_dep_token(self) -> None:
        """Always None: a graph has no assertions."""
        return None

    @property
    def input_tokens(self) -> tuple[str, ...]:
        """Always empty: nothing orders effects by tokens."""
        return ()

    @property
    def output_tokens(self) -> tuple[str, ...]:
        """Always empty: nothing orders effects by tokens."""
        return ()

    def __str__(self) -> str:
        inputs, outputs = (
            "\n".join(str(spec) for spec in specs) for specs in (self.input_specs, self.output_specs)
        )
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"
