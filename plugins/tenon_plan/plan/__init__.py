"""``tenon plan``: predict traffic, memory and time of a run on many ranks from a few steps of one rank.

``rehearsal.py`` runs these steps with simulated other ranks. ``replay.py`` repeats their collective calls on
real ranks of this machine, or of others. ``measure.py`` starts both, ``predict.py`` combines the
measurements, ``report.py`` prints the result, ``command.py`` is the command.
"""
