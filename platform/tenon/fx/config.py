"""Settings of ``tenon.fx``."""

#: Do not show progress of a run of ``Interpreter``; kept for PyTorch's programs, as no progress is shown
#: here.
disable_progress = True
verbose_progress = False
