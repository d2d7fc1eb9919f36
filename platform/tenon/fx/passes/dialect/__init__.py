"""Passes for graphs of one operator set."""
