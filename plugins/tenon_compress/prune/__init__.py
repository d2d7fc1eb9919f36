"""``tenon.prune``: weights that are zero become channels that are not there.

``mask_channels`` and ``mask_weights`` choose over a whole model what to zero, as ``tenon.nn.utils.prune``
does for one weight; a ``Pruner`` lets the masks grow in training. ``compact`` removes the channels that masks
have made superfluous, ``pack`` leaves the zeros out of linear layers that have few other elements, and
``load`` reads the result back.
"""

from tenon_compress.prune import criteria as criteria
from tenon_compress.prune import structured as structured
from tenon_compress.prune import unstructured as unstructured
from tenon_compress.prune.compaction import compact
from tenon_compress.prune.masking import mask_channels, mask_weights
from tenon_compress.prune.packed_linear import PackedLinear
from tenon_compress.prune.packing import pack
from tenon_compress.prune.schedules import Gradual, Lottery, OneShot, Pruner
from tenon_compress.prune.structure import load, structure_of

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
