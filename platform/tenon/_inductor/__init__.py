"""torch's ``torch._inductor``: the place of settings that scripts set; the compiler is ``tenon.compiler``."""

from tenon._inductor import config

__all__ = ["config"]
