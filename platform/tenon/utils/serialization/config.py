"""What ``load`` and ``save`` do where no argument says; the records are in ``tenon.serialize.options``.

>>> save.storage_alignment
64
"""

from tenon.serialize.options import load, save

__all__ = ["load", "save"]
