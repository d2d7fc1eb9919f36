"""PyTorch's path ``optim._muon``; the optimizer is a plugin's."""

from tenon.optim.optimizer import Optimizer as Optimizer
from tenon.plugins.lazy import lazy_namespace

__getattr__, __dir__ = lazy_namespace(__name__, kind="optimizers", only=("Muon",))
