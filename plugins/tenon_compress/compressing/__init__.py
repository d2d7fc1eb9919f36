"""``tenon.compress``: what a smaller model costs and gains, and how it is loaded.

``load`` reads models that ``tenon.prune``, ``tenon.quantize`` or both have made; ``receipt_of`` measures the
receipt that they return; ``command`` is ``tenon compress``.
"""

from tenon_compress import receipt
from tenon_compress.compressing.loading import load
from tenon_compress.receipt import Change, Receipt, Row, receipt_of

__all__ = ["Change", "Receipt", "Row", "load", "receipt", "receipt_of"]
