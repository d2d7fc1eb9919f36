"""Rewrites of a graph, one small file each: ``name(graph) -> None``."""
