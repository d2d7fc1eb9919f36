"""``tenon plan``: what a run on many ranks would send, need and take, from a few steps of one of its ranks.

``rehearsal.py`` runs those steps, with the other ranks pretended. ``replay.py`` repeats their collective
calls on real ranks of this machine, or of others. ``measure.py`` starts both, ``predict.py`` adds up,
``report.py`` shows it, ``command.py`` is the command.
"""
