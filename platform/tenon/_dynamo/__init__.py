"""torch's ``torch._dynamo``, as far as eager code names it; the compiler itself is ``tenon.compiler``."""

from tenon._dynamo import config
from tenon.compiler import disable, is_compiling, reset

__all__ = ["config", "disable", "is_compiling", "reset"]
