"""Execute ops and differentiate them: values, dispatch, the tape, the backward pass.

The engine names no op, module or plugin. Start with ``value.py`` and ``op.py``; ``dispatch.py`` runs an op,
``tape.py`` records it for autograd, ``sweep.py`` walks the recorded graph backwards.
"""
