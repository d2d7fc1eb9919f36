"""PyTorch's older ``nn.utils.spectral_norm``: ``weight_orig`` divided by its largest singular value.

Kept for compatibility; ``nn.utils.parametrizations.spectral_norm`` is the newer one. Both compute the
weight when it is read, by the pipeline of ``nn/weights.py``. The vectors ``weight_u`` and ``weight_v`` are
updated by power iteration in each call of the module in training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tenon.errors import ModuleError, ModuleValueError
from tenon.nn.functional import normalize
from tenon.nn.layers.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.module import Module, ModuleT
from tenon.nn.utils.weight_norm import remove_older
from tenon.nn.weights import begin_pipeline, pipeline_of, refuse_lazy, remove_hook, stored_tensor
from tenon.tensors.autograd.grad_mode import no_grad

if TYPE_CHECKING:
    from tenon.nn.state import Metadata, StateDict
    from tenon.tensors.tensor import Tensor

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Return ``weight`` as a matrix: axis ``dim`` by all others."""
    return weight.movedim(dim, 0).flatten(1)


def iterate(matrix: Tensor, u: Tensor, v: Tensor, times: int, eps: float) -> None:
    """Update ``u`` and ``v`` by power iteration towards the first singular vectors of ``matrix``.

    In place, because other ranks and recorded programs refer to these buffers.
    """
    with no_grad():
        for _ in range(times):
            v.copy_(normalize(matrix.mH.mv(u), dim=0, eps=eps))
            u.copy_(normalize(matrix.mv(v), dim=0, eps=eps))


def over_norm(weight: Tensor, matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Return ``weight`` divided by the singular value of the vectors ``u`` and ``v``, which are copied for
    backward."""
    return weight / u.clone().vdot(matrix.mv(v.clone()))


def transposed(module: Module) -> bool:
    """Return whether the second axis of ``module.weight`` is that of the outputs."""
    return isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d)


class SpectralNorm:
    """The pipeline step that divides by the norm, and the forward pre-hook of the power iteration."""

    is_mask: ClassVar[bool] = False
    _version: ClassVar[int] = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ModuleValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def _vectors(self, module: Module) -> tuple[Tensor, Tensor]:
        """Return the buffers of the singular vectors."""
        return getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")

    def __call__(self, module: Module, inputs: object) -> None:
        """Run power iterations before each call of the module in training."""
        if module.training:
            matrix = as_matrix(getattr(module, f"{self.name}_orig").detach(), self.dim)
            iterate(matrix, *self._vectors(module), self.n_power_iterations, self.eps)

    def forward(self, module: Module, *values: Tensor) -> Tensor:
        """Return ``weight_orig`` divided by its largest singular value."""
        (weight,) = values
        return over_norm(weight, as_matrix(weight, self.dim), *self._vectors(module))

    def right_inverse(self, module: Module, value: Tensor) -> Tensor:
        """Return ``value`` itself."""
        return value

    def discard(self, module: Module) -> None:
        """Remove the hook and the vectors."""
        remove_hook(module, self)
        for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
            for key in [key for key, hook in hooks.items() if _step_of(hook) is self]:
                del hooks[key]
        for letter in "uv":
            delattr(module, f"{self.name}_{letter}")

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        pipeline = pipeline_of(module, self.name)
        if pipeline is not None:
            pipeline.bake(module, 1)

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Put the step before all others of ``module.<name>``; ModuleError if there are others."""
        step = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = stored_tensor(module, name)
        if pipeline_of(module, name) is not None or weight is None:
            raise ModuleError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}, nor one that is"
                f" computed by another step or does not exist. nn.utils.parametrizations.spectral_norm"
                " composes."
            )
        refuse_lazy(weight, "SpectralNorm", "spectral")
        matrix = as_matrix(weight.detach(), dim)
        begin_pipeline(module, name, step, {f"{name}_orig": weight})
        for letter, size in zip("uv", matrix.shape, strict=True):
            vector = matrix.new_empty(size).normal_(0, 1)
            module.register_buffer(f"{name}_{letter}", normalize(vector, dim=0, eps=eps))
        module.register_forward_pre_hook(step)
        module._register_state_dict_hook(SpectralNormStateDictHook(step))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(step))
        return step


class SpectralNormStateDictHook:
    """State-dict hook that writes the version of the format into the metadata, as PyTorch does."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: object, prefix: str, local_metadata: Metadata) -> None:
        """Called by ``state_dict``."""
        local_metadata.setdefault("spectral_norm", {})[f"{self.fn.name}.version"] = self.fn._version


class SpectralNormLoadStateDictPreHook:
    """Load hook for the format of PyTorch before 1.0: the normalised weight as a buffer, and no vector ``v``.

    ``u = W v / |W v|`` and ``sigma = u W v`` held, so ``v`` solves ``W v = sigma u``.
    """

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self, state_dict: StateDict, prefix: str, local_metadata: Metadata, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Called by ``load_state_dict``."""
        key = prefix + self.fn.name
        known = local_metadata.get("spectral_norm", {}).get(f"{self.fn.name}.version")
        newest = all(key + ending in state_dict for ending in ("_orig", "_u", "_v")) and key not in state_dict
        if newest if known is None else known >= 1:
            return
        missing = [key + ending for ending in ("_orig", "", "_u") if key + ending not in state_dict]
        if missing:
            missing_keys.extend(missing if strict else ())
            return
        with no_grad():
            original, weight = state_dict[f"{key}_orig"], state_dict.pop(key)
            sigma = (original / weight).mean()
            matrix, u = as_matrix(original, self.fn.dim), state_dict[f"{key}_u"]
            v = matrix.pinverse().mv(u)
            state_dict[f"{key}_v"] = v * (sigma / u.dot(matrix.mv(v)))


def _step_of(hook: object) -> object:
    """Return the SpectralNorm of a state-dict hook, wrapped or not; None for any other hook."""
    return getattr(getattr(hook, "hook", hook), "fn", None)


def spectral_norm(
    module: ModuleT,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> ModuleT:
    """Keep the largest singular value of ``module.<name>`` at 1; return ``module``.

    ``dim`` is the axis of the outputs: 1 for transposed convolutions, 0 for all other modules.
    """
    axis = int(transposed(module)) if dim is None else dim
    SpectralNorm.apply(module, name, n_power_iterations, axis, eps)
    return module


def remove_spectral_norm(module: ModuleT, name: str = "weight") -> ModuleT:
    """Make ``module.<name>`` a parameter with its current value; return ``module``."""
    return remove_older(module, name, SpectralNorm, "spectral_norm")
