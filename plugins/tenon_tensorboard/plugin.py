"""TensorBoard event files of a run, in its folder: `tensorboard --logdir runs`."""

from tenon_tensorboard.hooks import tenon_report, tenon_session_finish, tenon_session_start, tenon_step_end

__all__ = ["tenon_report", "tenon_session_finish", "tenon_session_start", "tenon_step_end"]
