"""Capture and compile: the graph of executed ops, passes over it, and programs that replay it.

``graph.py`` is the data structure, ``recorder.py`` makes one of a real execution, ``passes/`` rewrite it,
``memory_plan.py`` lays out memory, ``program.py`` runs the result, ``compile.py`` is ``tenon.compile``.
"""
