"""A TensorBoard dashboard for profiled runs: reads Kineto-style traces, needs no network.

``dashboard.py`` handles TensorBoard's requests; ``runs.py`` finds trace files in the log directory. A
``worker.py`` process per file, forked by ``fork_server.py``, reads it (``stream.py``), validates it
(``collect.py``, ``lines.py`` for many lines at once) and sums it up (``sweep.py``, ``nesting.py`` for all
spans at once; ``digest.py``); ``readers.py`` caches the results. ``views.py`` and ``tracing.py`` combine the
ranks for each view; ``static/`` draws the views.
"""
