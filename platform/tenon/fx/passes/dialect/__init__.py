"""Passes for graphs whose functions are of one family of operators."""
