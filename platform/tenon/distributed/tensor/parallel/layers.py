"""Styles that shard layers: ``ColwiseParallel``, ``RowwiseParallel`` and ``SequenceParallel``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tenon.distributed.tensor.creation import distribute_module, distribute_tensor
from tenon.distributed.tensor.dtensor import DTensor
from tenon.distributed.tensor.parallel.parallel_style import ParallelStyle, as_placed, first_input
from tenon.distributed.tensor.placement_types import Placement, Replicate, Shard
from tenon.engine.types import Forwarded
from tenon.errors import ArgumentError, UnsupportedError
from tenon.nn.layers.embedding import Embedding
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh

#: Placements of parameters, by name.
Places = dict[str, Placement]
#: Key in the ``__dict__`` of a plain parameter: the DTensor parameter that has replaced it. Other modules may
#: still have the plain one, if it is shared.
REPLACED_BY = "_tensor_parallel_as"


class _LayerParallel(ParallelStyle):
    """A style for layers with one input and one output, of the types in ``places``."""

    places: ClassVar[dict[type[Module], Places]]
    #: The placement that the computation needs of its input, which is the default of ``input_layouts`` too.
    desired_input_layouts: ClassVar[tuple[Placement]]
    #: The default of ``output_layouts``.
    own_output_layout: ClassVar[Placement]

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (_placement("input_layouts", input_layouts, self.desired_input_layouts[0]),)
        self.output_layouts = (_placement("output_layouts", output_layouts, self.own_output_layout),)
        self.use_local_output = use_local_output

    def _desired_input(self, module: Module) -> Placement:
        """The placement of the input that the computation needs."""
        return self.desired_input_layouts[0]

    def _places(self, module: Module) -> Places | None:
        return next((places for kind, places in self.places.items() if isinstance(module, kind)), None)

    def _check(self, module: Module, path: str) -> None:
        if self._places(module) is None:
            name = type(self).__name__
            kinds = " and ".join(f"nn.{kind.__name__}" for kind in self.places)
            raise UnsupportedError(
                f"{name} currently only support {kinds}! {path or 'The module'} is a {type(module).__name__}."
                " Name layers of these types in the plan, or write a ParallelStyle for this one."
            )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self._check(module, "")
        places = self._places(module)
        assert places is not None
        desired = self._desired_input(module)

        def partition(name: str, submodule: Module, mesh: DeviceMesh) -> None:
            shard(submodule, mesh, _places_in(name, submodule, places), self.src_data_rank)

        def prepare_input(module: Module, inputs: Forwarded, mesh: DeviceMesh) -> Forwarded:
            given = first_input(module, inputs)
            what = f"the input of {type(module).__name__}"
            return as_placed(given, mesh, self.input_layouts[0], desired, what)

        def prepare_output(module: Module, output: Forwarded, mesh: DeviceMesh) -> Forwarded:
            placed: DTensor = output.redistribute(placements=self.output_layouts)
            return placed.to_local() if self.use_local_output else placed

        return distribute_module(module, device_mesh, partition, prepare_input, prepare_output)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts={self.output_layouts},"
            f" use_local_output={self.use_local_output})"
        )


class ColwiseParallel(_LayerParallel):
    """Split the output features of an ``nn.Linear``, or the embedding axis of an ``nn.Embedding``.

    ``input_layouts`` says how the input, a plain tensor, lies on the mesh: by default every rank has the
    whole; another one is gathered. ``output_layouts`` is the placement of the output: by default each rank
    has its features, as ``RowwiseParallel`` takes them. With ``use_local_output`` the output is this rank's
    part, a plain tensor, and otherwise a DTensor.

    Weights of pruned and parametrized layers are computed of sharded parts too.
    Source: torch.distributed.tensor.parallel.ColwiseParallel; Megatron-LM (Shoeybi et al. 2019).
    """

    places: ClassVar[dict[type[Module], Places]] = {
        Linear: {"weight": Shard(0), "bias": Shard(0)},
        Embedding: {"weight": Shard(1)},
    }
    desired_input_layouts, own_output_layout = (Replicate(),), Shard(-1)


class RowwiseParallel(_LayerParallel):
    """Split the input features of an ``nn.Linear``, or the rows of the table of an ``nn.Embedding``.

    The results of the ranks are added up: ``output_layouts`` is by default ``Replicate()``, an all-reduce;
    ``Shard(1)`` is a reduce-scatter, for ``SequenceParallel``. ``input_layouts`` is by default ``Shard(-1)``,
    the output of ``ColwiseParallel``, and for an embedding has to be ``Replicate()``, which it is converted
    to. With ``use_local_output`` the output is a plain tensor.

    Source: torch.distributed.tensor.parallel.RowwiseParallel; Megatron-LM (Shoeybi et al. 2019).
    """

    places: ClassVar[dict[type[Module], Places]] = {
        Linear: {"weight": Shard(1), "bias": Replicate()},
        Embedding: {"weight": Shard(0)},
    }
    desired_input_layouts, own_output_layout = (Shard(-1),), Replicate()

    def _desired_input(self, module: Module) -> Placement:
        return Replicate() if isinstance(module, Embedding) else self.desired_input_layouts[0]


class SequenceParallel(ParallelStyle):
    """Run a module on inputs that are sharded along the sequence, axis ``sequence_dim``.

    Parameters are replicated; for modules that treat positions alone, such as ``nn.LayerNorm``,
    ``nn.RMSNorm`` and ``nn.Dropout``. A plain input is this rank's part of the sequence; a DTensor is
    redistributed. The output is a DTensor, or with ``use_local_output`` this rank's part.

    Source: torch.distributed.tensor.parallel.SequenceParallel; Korthikanti et al. 2022.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def partition(name: str, submodule: Module, mesh: DeviceMesh) -> None:
            shard(submodule, mesh, {}, self.src_data_rank)

        def prepare_input(module: Module, inputs: Forwarded, mesh: DeviceMesh) -> Forwarded:
            given = first_input(module, inputs)
            if not isinstance(given, Tensor):
                raise ArgumentError(
                    f"expecting input of {type(module).__name__} to be a torch.Tensor or DTensor, but got a"
                    f" {type(given).__name__}. SequenceParallel shards the first input."
                )
            sharding = self.sequence_sharding[0]
            return as_placed(given, mesh, sharding, sharding, "the input"), *inputs[1:]

        def prepare_output(module: Module, output: Forwarded, mesh: DeviceMesh) -> Forwarded:
            return output.to_local() if self.use_local_output else output

        return distribute_module(module, device_mesh, partition, prepare_input, prepare_output)

    def __repr__(self) -> str:
        return (
            f"SequenceParallel(sequence_dim={self.sequence_sharding[0].dim},"
            f" use_local_output={self.use_local_output})"
        )


def _placement(name: str, given: Placement | None, default: Placement) -> Placement:
    if given is None:
        return default
    if not isinstance(given, Placement):
        raise ArgumentError(f"{name}={given!r} is not a placement. Use Shard(dim) or Replicate().")
    return given


def _places_in(path: str, submodule: Module, places: Places) -> Places:
    """The placements of the own tensors of ``submodule``, which is at ``path`` in the layer.

    What a weight is computed of, ``weight_orig`` and ``weight_mask`` of pruned layers and the tensors below
    ``parametrizations.weight``, is placed as the weight, where it has that axis.
    """
    parts = path.split(".")
    pipeline = places.get(parts[1]) if len(parts) > 1 and parts[0] == "parametrizations" else None
    result = {}
    for key, tensor in (*submodule._parameters.items(), *submodule._buffers.items()):
        name = key.removesuffix("_orig").removesuffix("_mask")
        placement = pipeline if path else places.get(name)
        if tensor is None or placement is None:
            continue
        whole = isinstance(placement, Shard) and (
            tensor.ndim <= placement.dim or tensor.shape[placement.dim] == 1
        )
        result[key] = Replicate() if whole else placement
    return result


def shard(module: Module, mesh: DeviceMesh, places: Places, source: int | None) -> None:
    """Make the module's own parameters and buffers DTensors by ``places``; those without one are whole.

    A parameter that several modules share stays shared. Raises ``ArgumentError`` if they place it
    differently.
    """
    for key, parameter in list(module._parameters.items()):
        if parameter is None or isinstance(parameter, DTensor):
            continue
        placement = places.get(key, Replicate())
        module.register_parameter(key, _replacement(parameter, key, mesh, placement, source))
    for key, buffer in list(module._buffers.items()):
        if buffer is not None and not isinstance(buffer, DTensor):
            placed = [places.get(key, Replicate())]
            module._buffers[key] = distribute_tensor(buffer, mesh, placed, src_data_rank=source)


def _replacement(
    parameter: Parameter, key: str, mesh: DeviceMesh, placement: Placement, source: int | None
) -> Parameter:
    """The DTensor parameter that stands for ``parameter``: the same for all modules that have it."""
    earlier = parameter.__dict__.get(REPLACED_BY)
    if earlier is None:
        local = parameter.detach()
        placed = distribute_tensor(local, mesh, [placement], src_data_rank=source)
        own = {key: value for key, value in parameter.__dict__.items() if key not in ("_grad", "grad")}
        made = parameter.__dict__[REPLACED_BY] = Parameter(placed, parameter.requires_grad)
        made.__dict__.update(own)
        return made
    replacement: Parameter = earlier
    if replacement.device_mesh != mesh or replacement.placements != (placement,):
        raise ArgumentError(
            f"parameter {key!r} of {list(parameter.shape)} is shared with another module, which places it by"
            f" {replacement.placements}, not by {(placement,)}."
            " Choose styles that shard it alike: a tied embedding and head are RowwiseParallel() and"
            " ColwiseParallel()."
        )
    return replacement
