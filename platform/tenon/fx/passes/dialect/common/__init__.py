"""Passes for graphs of any functions."""
