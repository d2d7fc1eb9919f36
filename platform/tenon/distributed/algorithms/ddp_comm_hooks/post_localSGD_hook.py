"""torch's path; the code is in ``tenon.distributed.local_sgd``."""

from tenon.distributed.local_sgd import PostLocalSGDState, post_localSGD_hook

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]
