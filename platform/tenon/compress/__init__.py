"""What a smaller model costs and gains: the receipt that ``tenon.prune`` and ``tenon.quantize`` return.

``load`` reads models that either or both have made; ``command`` is ``tenon compress``.
"""

from tenon.compress.loading import load
from tenon.compress.receipt import Change, Receipt, Row, receipt_of

__all__ = ["Change", "Receipt", "Row", "load", "receipt_of"]
