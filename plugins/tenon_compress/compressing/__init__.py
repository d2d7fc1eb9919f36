"""``tenon.compress``: measure what compressing a model costs and gains, and load compressed models.

``load`` loads models that ``tenon.prune``, ``tenon.quantize`` or both have compressed; ``receipt_of``
measures the receipt that they return; ``command`` is the command ``tenon compress``.
"""

from tenon_compress import receipt
from tenon_compress.compressing.loading import load
from tenon_compress.receipt import Change, Receipt, Row, receipt_of

__all__ = ["Change", "Receipt", "Row", "load", "receipt", "receipt_of"]
