"""What a smaller model costs and gains: the receipt that ``tenon.prune`` and ``tenon.quantize`` return."""

from tenon.compress.receipt import Change, Receipt, Row, receipt_of

__all__ = ["Change", "Receipt", "Row", "receipt_of"]
