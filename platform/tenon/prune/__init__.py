"""``tenon.prune``: weights that are zero become channels that are not there.

``tenon.nn.utils.prune`` puts masks on weights; ``compact`` removes from a masked model what the masks make
superfluous, and ``load`` reads it back.
"""

from tenon.prune.compaction import compact
from tenon.prune.structure import load, structure_of

__all__ = ["compact", "load", "structure_of"]
