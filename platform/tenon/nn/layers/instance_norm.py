"""Instance normalisation: each channel of each sample by itself."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar

from tenon.errors import ModuleValueError, TenonWarning
from tenon.nn import functional as F
from tenon.nn.layers.norm import _NormBase

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.nn.state import Metadata, StateDict
    from tenon.tensors.tensor import Tensor

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    """Base class of instance normalisations over ``rank`` spatial axes."""

    rank: ClassVar[int]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: DeviceLike = None, dtype: dtype | None = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.raw.ndim not in (self.rank + 1, self.rank + 2):
            raise ModuleValueError(
                f"expected {self.rank + 1}D or {self.rank + 2}D input (got {input.raw.ndim}D input)"
            )

    def _get_no_batch_dim(self) -> int:
        return self.rank + 1

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input; in training the running statistics, if any, follow the batch."""
        self._check_input_dim(input)
        axis = input.raw.ndim - self.rank - 1
        size = input.raw.shape[axis]
        if size != self.num_features:
            text = (
                f"input's size at dim={axis} does not match num_features. You can silence this warning by not"
                " passing in num_features, which is not used because affine=False"
            )
            if self.affine:
                raise ModuleValueError(
                    f"expected input's size at dim={axis} to match num_features ({self.num_features}), but"
                    f" got: {size}."
                )
            warnings.warn(text, TenonWarning, stacklevel=2)
        x = input.unsqueeze(0) if axis == 0 else input
        result = F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return result.squeeze(0) if axis == 0 else result

    def _load_from_state_dict(
        self, state_dict: StateDict, prefix: str, local_metadata: Metadata, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        if local_metadata.get("version") is None and not self.track_running_stats:
            # Before version 1 the statistics were kept by default.
            present = [k for k in ("running_mean", "running_var") if prefix + k in state_dict]
            if present:
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {' and '.join(present)} for {type(self).__name__}"
                    " with track_running_stats=False. Remove these keys from the state dict if they are not"
                    " wanted, or make the layer with track_running_stats=True."
                )
                for key in present:
                    state_dict.pop(prefix + key)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of ``[N, C, L]`` or ``[C, L]``."""

    rank = 1


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of ``[N, C, H, W]`` or ``[C, H, W]``."""

    rank = 2


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""

    rank = 3
