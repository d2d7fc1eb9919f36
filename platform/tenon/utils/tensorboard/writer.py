"""PyTorch's path ``utils.tensorboard.writer``; the name is that of ``tenon.utils.tensorboard``."""

from tenon.plugins.lazy import lazy_namespace

__getattr__, __dir__ = lazy_namespace(__name__, kind="observers", only=("SummaryWriter",))
