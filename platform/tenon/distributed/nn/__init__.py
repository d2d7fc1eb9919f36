"""Collectives with gradients, under torch's module names."""
