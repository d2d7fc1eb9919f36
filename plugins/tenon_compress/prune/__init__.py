"""``tenon.prune``: mask weights and channels of a model, and remove what is masked.

``mask_channels`` and ``mask_weights`` choose over a whole model what to mask, as ``tenon.nn.utils.prune``
does for one weight; ``channel_groups`` lists among which channels they choose. A ``Pruner`` lets the masks
grow in training. ``compact`` removes masked channels, ``pack`` stores only the nonzero elements of sparse
linear layers, and ``load`` loads such a model.
"""

from tenon.nn.input_norms import record_inputs
from tenon_compress.prune import criteria as criteria
from tenon_compress.prune import structured as structured
from tenon_compress.prune import unstructured as unstructured
from tenon_compress.prune.channel_groups import ChannelGroup, channel_groups
from tenon_compress.prune.compaction import compact
from tenon_compress.prune.masking import mask_channels, mask_weights
from tenon_compress.prune.packed_linear import PackedLinear
from tenon_compress.prune.packing import pack
from tenon_compress.prune.schedules import Gradual, Lottery, OneShot, Pruner
from tenon_compress.prune.structure import load, structure_of

__all__ = [
    "ChannelGroup",
    "Gradual",
    "Lottery",
    "OneShot",
    "PackedLinear",
    "Pruner",
    "channel_groups",
    "compact",
    "load",
    "mask_channels",
    "mask_weights",
    "pack",
    "record_inputs",
    "structure_of",
]
