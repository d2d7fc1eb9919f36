"""Kernels of single ops over compiled loops, and the conditions under which a call can use them."""
