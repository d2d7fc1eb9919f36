"""A TensorBoard dashboard for profiled runs: reads Kineto-style traces, needs no network.

``dashboard.py`` answers TensorBoard; ``runs.py`` finds trace files inside the log directory; ``readers.py``
keeps what a ``worker.py`` process per file, forked as ``nursery.py`` asks, has read (``stream.py``), checked
(``collect.py``, many lines at a time ``lines.py``) and added up (``sweep.py``, all spans at once
``nesting.py``; ``digest.py``); ``views.py`` and ``tracing.py`` join the ranks into what each view shows;
``static/`` draws it.
"""
