"""``ImageFolder``: images in one folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tenon.data.dataset import Dataset
from tenon.errors import CheckpointError, DataError
from tenon.serialize.limits import FACTOR, FREE, cut
from tenon.serialize.regular_files import open_regular
from tenon.tensors.creation import create

if TYPE_CHECKING:
    from PIL.Image import Image

    from tenon.tensors.tensor import Tensor

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
#: Whatever a file is called, Pillow decodes no other formats: for some it runs programs, such as Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
#: The most bytes of a decoded pixel.
_PIXEL = 4


class ImageFolder(Dataset[tuple[Any, Any]]):  # the types of the transforms' results
    """Images in one folder per class (``root/dog/1.png``), as torchvision's ImageFolder.

    A sample is ``(image, label)``; the image is ``float32[3, H, W]`` in [0, 1], or the result of
    ``transform`` on the PIL image. ``classes`` are the folders in alphabetical order, ``samples`` pairs of
    path and label. Needs pillow (``pip install pillow``). DataError for a folder without images, and, with
    its path, for a file that cannot be read.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Image], object] | None = None,
        target_transform: Callable[[int], object] | None = None,
    ) -> None:
        _pillow()
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a folder. Pass the folder that has one folder per class.")
        self.classes = sorted(folder.name for folder in self.root.iterdir() if folder.is_dir())
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (path, label)
            for name, label in self.class_to_idx.items()
            for path in sorted((self.root / name).rglob("*"))
            if path.suffix.lower() in EXTENSIONS
        ]
        self.targets = [label for _, label in self.samples]
        empty = set(self.class_to_idx.values()) - set(self.targets)
        if empty or not self.classes:
            names = ", ".join(self.classes[i] for i in sorted(empty)) or "any class"
            raise DataError(
                f"{self.root} has no image of {names}. Images are in one folder per class and end in"
                f" {', '.join(EXTENSIONS)}."
            )
        self.transform = transform
        self.target_transform = target_transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[object, object]:
        path, label = self.samples[index]
        image = _read(path)
        sample = to_tensor(image) if self.transform is None else self.transform(image)
        return sample, label if self.target_transform is None else self.target_transform(label)


def to_tensor(image: Image) -> Tensor:
    """Convert a PIL image to ``float32[3, H, W]`` in [0, 1]."""
    pixels = np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1) / 255
    return create.tensor(np.ascontiguousarray(pixels))


def image_in(file: BinaryIO, size: int) -> Image:
    """The RGB image in a file of ``size`` bytes; DataError if it cannot be read, or takes far more memory."""
    pillow = _pillow()
    try:
        with pillow.open(file, formats=FORMATS) as opened:
            _check_pixels(opened, size)
            return opened.convert("RGB")
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise errors of any kind for damaged files
        raise DataError(f"cannot be read as an image: {cut(error).rstrip('.')}") from error


def _read(path: Path) -> Image:
    """The RGB image in a file; DataError with its path if it cannot be read."""
    try:
        with open_regular(path) as file:
            return image_in(file, os.fstat(file.fileno()).st_size)
    except (CheckpointError, OSError) as error:
        raise DataError(f"{path} cannot be read as an image: {cut(error).rstrip('.')}.") from error
    except DataError as error:
        raise DataError(f"{path} {error}. Remove it, or download it again.") from error


def _check_pixels(image: Image, size: int) -> None:
    """DataError if the pixels of ``image`` take far more memory than its file of ``size`` bytes."""
    width, height = image.size
    if width * height * _PIXEL > FREE + FACTOR * size:
        raise DataError(
            f"its {width:,} x {height:,} pixels would take more than {FACTOR} times its {size:,} bytes"
        )


def _pillow() -> ModuleType:
    """The module ``PIL.Image``; DataError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("reading images needs Pillow: pip install pillow") from error
    return Image
