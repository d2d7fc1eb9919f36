"""torch's ``torch._dynamo``, as far as eager code names it; the compiler itself is ``tenon.compiler``."""

from tenon.compiler import disable, is_compiling

__all__ = ["disable", "is_compiling"]
