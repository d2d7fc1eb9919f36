"""Compiled kernels as ops, with the conditions of the calls that they compute."""
