"""``ParallelStyle``: how one module of a plan is made parallel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from tenon.distributed.tensor.dtensor import DTensor
from tenon.errors import ArgumentError, ModuleValueError
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh
    from tenon.distributed.tensor.placement_types import Placement
    from tenon.nn.module import Module


class ParallelStyle(ABC):
    """Makes a module parallel over a mesh of one dimension; ``parallelize_module`` calls ``_apply``.

    ``src_data_rank`` is the rank of the mesh whose parameters all take; None for each rank's own. A style of
    your own defines ``_apply(module, device_mesh)``, which changes the module in place and returns it, and
    may define ``_check``; one that leaves parameters alone sets ``_shards`` to False, so that it may stand
    beside another one. Source: torch.distributed.tensor.parallel.ParallelStyle.
    """

    src_data_rank: int | None = 0
    _shards: ClassVar[bool] = True

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Make ``module`` parallel."""

    def _check(self, module: Module, path: str) -> None:  # noqa: B027  # fits every module by default
        """Raise if the style does not fit ``module``, which is at ``path``; called for a whole plan before
        any of it is applied."""


class StyleError(ArgumentError, AssertionError):
    """Wrong layouts for a style; also an AssertionError, which PyTorch raises."""


def as_placed(
    value: object, mesh: DeviceMesh, layout: Placement, desired: Placement | None, what: str
) -> DTensor:
    """``value`` as a DTensor by ``desired``; a plain tensor is this rank's part by ``layout``.

    Raises ``StyleError`` if it is not a tensor.
    """
    if not isinstance(value, Tensor):
        raise StyleError(
            f"expecting {what} to be a torch.Tensor, but got a {type(value).__name__}. Use None as the layout"
            " of what is not a tensor."
        )
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, (layout,))
    return value if desired is None else value.redistribute(placements=(desired,))


def first_input(module: Module, inputs: tuple[object, ...]) -> object:
    """The first positional input; ModuleValueError if there is none."""
    if not inputs:
        raise ModuleValueError(
            f"{type(module).__name__}: a parallel layer takes its input as the first positional argument, but"
            " was called without one. Pass it by position, not by keyword."
        )
    return inputs[0]
