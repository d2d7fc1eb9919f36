"""``tenon.distributed.algorithms``: torch's place for ``Join`` and the communication hooks."""

from tenon.distributed.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
