"""``PatchEmbed``: an image as a sequence of projected patches. PyTorch has no such layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenon.errors import ShapeError
from tenon.nn.functional.arguments import PerAxis, per_axis
from tenon.nn.layers.conv import Conv2d
from tenon.nn.layers.linear import Identity
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["PatchEmbed"]


class PatchEmbed(Module):
    """``x[N, C, H, W]`` as ``[N, (H / p) * (W / p), embed_dim]``: a linear projection of each patch of ``p``
    by ``p`` pixels (Dosovitskiy et al., 2021). Attribute names are timm's: ``proj``, ``norm``,
    ``num_patches``.

    ``img_size=None`` accepts every size that is a multiple of the patch size. ``flatten=False`` returns
    ``[N, embed_dim, H / p, W / p]``.
    """

    def __init__(
        self,
        img_size: PerAxis | None = 224,
        patch_size: PerAxis = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        norm_layer: Callable[[int], Module] | None = None,
        flatten: bool = True,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.patch_size = per_axis(patch_size, 2, "patch_size")
        self.img_size = None if img_size is None else per_axis(img_size, 2, "img_size")
        self.grid_size = None if self.img_size is None else self._grid(*self.img_size)
        self.num_patches = None if self.grid_size is None else self.grid_size[0] * self.grid_size[1]
        self.flatten = flatten
        self.proj = Conv2d(
            in_chans, embed_dim, self.patch_size, self.patch_size, bias=bias, device=device, dtype=dtype
        )
        self.norm = Identity() if norm_layer is None else norm_layer(embed_dim)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the numbers of patches along height and width; raise ShapeError if they do not divide
        these."""
        if height % self.patch_size[0] or width % self.patch_size[1]:
            raise ShapeError(
                f"PatchEmbed: patches of {self.patch_size} do not divide an image of {(height, width)}."
                " Crop, pad or resize it."
            )
        return height // self.patch_size[0], width // self.patch_size[1]

    def forward(self, x: Tensor) -> Tensor:
        """The projected patches, row by row."""
        size = tuple(x.shape[-2:])
        if self.img_size is not None and size != self.img_size:
            raise ShapeError(
                f"PatchEmbed: expected images of {self.img_size}, got {size}. Resize them, or make the layer"
                " with img_size=None."
            )
        self._grid(*size)
        x = self.proj(x)
        return self.norm(x.flatten(2).transpose(1, 2) if self.flatten else x)
