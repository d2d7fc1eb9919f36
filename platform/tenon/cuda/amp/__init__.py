"""PyTorch's older module ``torch.cuda.amp``: mixed precision for CUDA; the code is in ``tenon.amp``."""

from tenon.cuda.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from tenon.cuda.amp.common import amp_definitely_not_available
from tenon.cuda.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
