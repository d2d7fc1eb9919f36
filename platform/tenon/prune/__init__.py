"""``tenon.prune``: weights that are zero become channels that are not there.

``mask_channels`` and ``mask_weights`` choose over a whole model what to zero, as ``tenon.nn.utils.prune``
does for one weight. ``compact`` removes what masks have made superfluous, ``load`` reads the result back.
"""

from tenon.prune.compaction import compact
from tenon.prune.masking import mask_channels, mask_weights
from tenon.prune.structure import load, structure_of

__all__ = ["compact", "load", "mask_channels", "mask_weights", "structure_of"]
