"""torch's path of PowerSGD; the code is in ``tenon.distributed.powersgd``."""

from tenon.distributed.powersgd import PowerSGDState, batched_powerSGD_hook, powerSGD_hook

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]
