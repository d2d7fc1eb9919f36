"""torch's path of ``Join``; the code is in ``tenon.distributed.join``."""

from tenon.distributed.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
