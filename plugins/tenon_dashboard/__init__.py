"""A TensorBoard dashboard for profiled runs: reads Kineto-style traces, needs no network.

``dashboard.py`` answers TensorBoard; ``runs.py`` finds trace files inside the log directory; ``readers.py``
starts a ``worker.py`` process per file, which reads (``stream.py``), checks (``collect.py``) and adds up
(``sweep.py``, ``tallies.py``); ``views.py`` joins the ranks into what each view shows; ``static/`` draws it.
"""
