"""``torch.utils.tensorboard``; a plugin provides ``SummaryWriter``."""

from tenon.plugins.lazy import lazy_namespace

__getattr__, __dir__ = lazy_namespace(__name__, kind="observers", only=("SummaryWriter",))
