"""Ops on floats of 16 bits."""
