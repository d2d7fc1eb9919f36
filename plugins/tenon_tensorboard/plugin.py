"""TensorBoard event files of a run, in its folder (`tensorboard --logdir runs`), and of scripts."""

from collections.abc import Mapping

from tenon.extend import hookimpl
from tenon_tensorboard.hooks import tenon_report, tenon_session_finish, tenon_session_start, tenon_step_end

__all__ = [
    "tenon_observers",
    "tenon_report",
    "tenon_session_finish",
    "tenon_session_start",
    "tenon_step_end",
]


@hookimpl
def tenon_observers() -> Mapping[str, str]:
    """Register ``SummaryWriter`` of ``torch.utils.tensorboard``."""
    return {"SummaryWriter": "tenon_tensorboard.summary_writer:SummaryWriter"}
