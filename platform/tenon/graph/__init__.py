"""Capture and compile: the graph of executed ops, passes over it, and programs that replay it.

``graph.py`` is the data structure, ``recorder.py`` records a graph of an execution, ``passes/`` rewrite it,
``memory_plan.py`` assigns memory, ``program.py`` runs the result, ``compile.py`` is ``tenon.compile``.
"""
