"""``tenon.prune``: weights that are zero become channels that are not there.

``mask_channels`` and ``mask_weights`` choose over a whole model what to zero, as ``tenon.nn.utils.prune``
does for one weight; a ``Pruner`` lets the masks grow in training. ``compact`` removes the channels that masks
have made superfluous, ``pack`` leaves the zeros out of linear layers that have few other elements, and
``load`` reads the result back.
"""

from tenon.prune.compaction import compact
from tenon.prune.layers import PackedLinear
from tenon.prune.masking import mask_channels, mask_weights
from tenon.prune.packed import pack
from tenon.prune.schedules import Gradual, Lottery, OneShot, Pruner
from tenon.prune.structure import load, structure_of

__all__ = [
    "Gradual",
    "Lottery",
    "OneShot",
    "PackedLinear",
    "Pruner",
    "compact",
    "load",
    "mask_channels",
    "mask_weights",
    "pack",
    "structure_of",
]
