"""``tenon.distributed``."""
